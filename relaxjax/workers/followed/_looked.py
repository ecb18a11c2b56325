"""One worker's step, traced without a device, to be followed before it is trusted."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._phases import hosted
from relaxjax._core.traced._marks import heard_updates
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._traced import tracing


class Looked(NamedTuple):
    """A traced step (state, batch) -> (state, values).

    Attributes:
      program: the closed jaxpr.
      state: the state's shapes and dtypes, by argument.
      values: what relaxations are given as `value=`.
      places: those of the params, among the state's leaves.
    """

    program: Any
    state: tuple[Any, ...]
    values: Sequence[Any]
    places: Sequence[int]

    @property
    def states(self) -> int:
        """The number of the state's leaves."""
        return len(jax.tree.leaves(self.state))


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


def looked_at(
    step: Callable[..., Any], shapes: tuple[Any, Any], workers: WorkerMesh
) -> Looked | None:
    """The step of one worker; None inside another trace, or where it fails.

    The params are those that relaxations are given; where these are not an argument's
    own, as in a step that is jitted itself, they are the first argument like the
    updates. Of the values of such a step nothing is known.
    """
    alike: set[int] = set()

    def listened(*args: Any) -> Any:
        with heard_updates() as heard:
            out = step(*args)
        for _, updates, _ in heard:
            alike.update(_places(args[:-1], updates))
        values = [value for value, *_ in heard]
        return out[:-1], values, [params for *_, params in heard]

    state, batch = shapes
    try:
        with tracing(workers) as trace:
            run = trace(listened, return_shape=True)
            program, (_, values, _) = run(*state, batch)
    except Exception:
        return None  # of a program that has run: it is a look, and no step
    states = len(jax.tree.leaves(state))
    end = states + len(jax.tree.leaves(values))
    outs, ins = program.jaxpr.outvars, program.jaxpr.invars[:states]
    given = {id(var) for var in outs[end:]}
    own = [i for i, var in enumerate(ins) if id(var) in given]
    return Looked(program, state, outs[states:end], own or sorted(alike))


def _places(state: Any, updates: Any) -> range:
    """Places, among the state's leaves, of the first argument like some updates."""
    start = 0
    for part in state:
        end = start + len(jax.tree.leaves(part))
        if _is_alike(part, updates):
            return range(start, end)
        start = end
    return range(0)


def _is_alike(tree: Any, other: Any) -> bool:
    same = jax.tree.structure(tree) == jax.tree.structure(other)
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=False)
    return same and all(jnp.shape(x) == jnp.shape(y) for x, y in pairs)
