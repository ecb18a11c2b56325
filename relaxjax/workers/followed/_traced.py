"""What can be known of a transformation before it runs: its traced programs.

`init` and `update` are traced abstractly, in the axes of the workers, as on devices;
phases one by one. Three walks follow the update, to say

    by which way gradients come to the updates    `relaxjax._core.traced._flows`
    what a worker's own gradient decides          `..followed._dependence`
    on which side of the relaxations keys draw    `..followed._drawing_keys`

Cost: a trace of `init`, one of `update`, and three walks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import optax

from relaxjax._core._arrays import shapes_of
from relaxjax._core._local import LocalState
from relaxjax._core._phases import timed
from relaxjax._core._tree import leaf_names
from relaxjax._core.layouts._sharding import as_on_devices
from relaxjax._core.traced._asked import meeting_too, numbered, remarks
from relaxjax._core.traced._extra_args import FAILURES, ExtraArgs, with_extra_args
from relaxjax._core.traced._flows import Flows, flows_of
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._dependence import NOBODYS, Dependence
from relaxjax.workers.followed._drawing_keys import Keys, keys_of


class Traced(NamedTuple):
    """What is known of a transformation.

    Attributes:
      own: the leaves that are `local`.
      flows: the flows of the update.
      state: shapes and dtypes of a worker's state.
      error: why nothing is known of the update; then `flows` is None. None if the
        state cannot be made: who makes it hears of that.
      alone: names of what communicates where a worker's own gradient says so.
      keys: on which side of the relaxations each key of the state draws.
      said: remarks of the methods on how they were put together.
      meets: periods of params and of fields of the state that `desynced` averages.
    """

    own: frozenset[str] = frozenset()
    flows: Flows | None = None
    state: Any = ()
    error: Exception | None = None
    alone: frozenset[str] = frozenset()
    keys: Keys = Keys({}, [])
    said: tuple[str, ...] = ()
    meets: Mapping[str, int] = MappingProxyType({})


@contextmanager
def tracing(workers: WorkerMesh) -> Iterator[Callable[..., Any]]:
    """`jax.make_jaxpr`, of functions that know the axes as on devices.

    Each trace is made anew, and not JAX's of the last time, when other things may have
    been asked of it (`numbered`, `passed_over`, `remarks`).
    """
    env: Any = list(zip(workers.axis_name, workers.sizes, strict=True))

    def trace(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        return jax.make_jaxpr(lambda *args: function(*args), axis_env=env, **how)

    with as_on_devices(workers.mesh.shape, workers.axis_name):
        yield trace


def traced(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None = None,
) -> Traced:
    """Traces `init` and `update` abstractly, as on devices."""
    spec = shapes_of(params)

    def look(extra: ExtraArgs, state: Any) -> Any:
        with numbered():
            return trace(extra.update_of(tx))(spec, state, spec, extra.arrays)

    with tracing(workers) as trace, remarks() as said, meeting_too() as meets:
        try:
            with numbered():
                state = trace(tx.init, return_shape=True)(spec)[1]
        except FAILURES:
            return Traced()
        try:
            program = timed(  # phases one by one
                lambda state: with_extra_args(
                    partial(look, state=state), spec, extra_args
                ),
                state,
            )
        except FAILURES as error:
            return Traced(error=error)
    parts = filter(is_local, parts_of(state, is_local))
    own = [set(x.layout.leaves) for x in parts]
    count, names = len(jax.tree.leaves(state)), leaf_names(params)
    flows = flows_of(program, names, _fields(state), workers.axis_name)
    alone = _alone(program, len(names), count, workers.axis_name)
    keys = keys_of(program, state, len(names), workers.axis_name)
    local = frozenset().union(*own)
    return Traced(
        local, flows, state, alone=alone, keys=keys, said=tuple(said), meets=meets
    )


def _fields(state: Any) -> list[str]:
    """The innermost field that holds each leaf of the state; "" for a number."""

    def field(path: Any, x: Any) -> str:
        fields = [key.name for key in path if hasattr(key, "name")]
        return fields[-1] if fields and x.ndim else ""

    return [field(path, x) for path, x in jax.tree.leaves_with_path(state)]


def _alone(
    program: Any, leaves: int, states: int, axes: Sequence[str]
) -> frozenset[str]:
    """What communicates, or not, by a worker's own gradient, of this step or others."""
    own = frozenset(("gradients", axis) for axis in axes)
    rest = len(program.jaxpr.invars) - leaves
    walk = Dependence(axes)
    carried = range(leaves, leaves + states)
    walk.steps(program, [own] * leaves + [NOBODYS] * rest, carried)
    return frozenset(walk.alone)


def parts_of(tree: Any, stops: Callable[[Any], bool]) -> list[Any]:
    """The parts of a tree, whole where it stops."""
    return jax.tree.leaves(tree, is_leaf=stops)


def is_local(part: Any) -> bool:
    return isinstance(part, LocalState)
