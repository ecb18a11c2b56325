"""A worker's own loss as `value=`, which parts the replicas behind any reducer.

`init` cannot know whether the step hands `value=` a mean. The step itself can be looked
at: where a relaxation's update is given `value=`, the step is traced once more, without
a device, and followed:

    from the batch    to `value`: its own, unless a collective lies between
    from `value`      to the params that come out: parted, unless anything lies between
                      that brings the workers together, such as local_sgd

A loss of which only some leaves depend may be the loss itself in the gradient of leaves
that are each worker's on purpose (`relaxjax.local`): then nothing is said.

Cost: one more trace of the first step, where `value=` is given; else nothing.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import Literal

from relaxjax._core._phases import hosted
from relaxjax._core.traced._extra_args import FAILURES
from relaxjax._core.traced._marks import heard_updates
from relaxjax.workers._dependence import NOBODYS, Dependence
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers._traced import tracing


def shapes_of_one(state: Any, batch: Any, workers: WorkerMesh) -> tuple[Any, Any]:
    """What one worker's step takes, as shapes and dtypes."""

    def own(x: Any) -> jax.ShapeDtypeStruct:
        kind = jax.typeof(x)
        return jax.ShapeDtypeStruct(kind.shape[1:], kind.dtype)

    def share(x: Any) -> jax.ShapeDtypeStruct:
        kind = jax.typeof(x)  # of an array of NumPy too, in the dtype that JAX takes
        rows, *rest = kind.shape
        return jax.ShapeDtypeStruct((rows // workers.n, *rest), kind.dtype)

    return jax.tree.map(own, hosted(state)), jax.tree.map(share, batch)


def warn_of_own_value(
    step: Callable[..., Any], shapes: tuple[Any, Any], workers: WorkerMesh
) -> None:
    """Warns where a worker's own `value=` reaches its params; silent where unsure."""
    found = looked_at(step, shapes, workers)
    if found and _is_parted(found, workers):
        axes = workers.axis_name
        axis = axes[0] if len(axes) == 1 else axes
        warnings.warn(
            "data_parallel: updates depend on value=, which is each worker's own loss "
            "here, and no relaxation comes after it: learning rates, and so models, "
            "part, though gradients are reduced. Give all workers the mean, as in "
            f"tx.update(..., value=jax.lax.pmean(loss, {axis!r}))",
            stacklevel=5,
        )


class Looked(NamedTuple):
    """A traced step (state, batch) -> (state, values).

    Attributes:
      program: the closed jaxpr.
      states: the number of the state's leaves.
      values: what relaxations are given as `value=`.
      places: those of the params that relaxations are given, among the state's leaves.
    """

    program: Any
    states: int
    values: Sequence[Any]
    places: Sequence[int]


def looked_at(
    step: Callable[..., Any], shapes: tuple[Any, Any], workers: WorkerMesh
) -> Looked | None:
    """The step of one worker, traced without a device; None inside another trace."""
    counts: list[int] = []

    def listened(*args: Any) -> Any:
        with heard_updates() as heard:
            out = step(*args)
        values = [v for v, _ in heard if v is not None]
        parts = out[:-1], values, [p for _, p in heard]
        counts[:] = [len(jax.tree.leaves(part)) for part in parts]
        return parts

    state, batch = shapes
    try:
        with tracing(workers) as trace:
            program = trace(listened)(*state, batch)
    except (*FAILURES, jax.errors.UnexpectedTracerError):
        return None
    states, values, _ = counts
    ins, outs = program.jaxpr.invars, program.jaxpr.outvars
    given, params = outs[states : states + values], outs[states + values :]
    places = [i for i, var in enumerate(ins[:states]) if any(var is p for p in params)]
    return Looked(program, states, given, places)


def _is_parted(found: Looked, workers: WorkerMesh) -> bool:
    program, states, values, places = found
    ins = program.jaxpr.invars
    walk = Dependence(workers.axis_name)
    of_batch = frozenset(("batch", axis) for axis in workers.axis_name)
    own = [NOBODYS] * states + [of_batch] * (len(ins) - states)
    known = walk.of(program.jaxpr, own)[states : states + len(values)]
    walk.seeds = {
        var: frozenset(("value", axis) for _, axis in by)
        for var, by in zip(values, known, strict=True)
        if not isinstance(var, Literal)
    }
    after = walk.steps(program, [NOBODYS] * len(ins), range(states))
    return bool(places) and all(after[i] for i in places)
