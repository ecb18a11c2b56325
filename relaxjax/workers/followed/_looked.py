"""One worker's step, traced once: mapped over the workers, and followed before trust.

JAX maps a jitted step from its program for one worker, under `jax.vmap` too. So that
program, in which all collectives stand, is at hand without a trace of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

from relaxjax._core.traced._marks import Given, heard_updates


class Looked(NamedTuple):
    """A traced step (state, batch) -> (state, values, ...).

    Attributes:
      program: the closed jaxpr.
      state: the state's shapes and dtypes, by argument.
      values: what relaxations are given as `value=`.
      places: those of the params, among the state's leaves.
      relaxes: whether there are relaxations in it.
    """

    program: Any
    state: tuple[Any, ...]
    values: Sequence[Any]
    places: Sequence[int]
    relaxes: bool

    @property
    def states(self) -> int:
        """The number of the state's leaves."""
        return len(jax.tree.leaves(self.state))


def looked_at(
    step: Callable[..., tuple[Any, ...]], found: Callable[[Looked], None]
) -> Callable[..., tuple[Any, ...]]:
    """The same `step(*state, batch) -> (state, ...)`; where traced, it is `found`.

    The params are those that relaxations are given; where these are not an argument's
    own, as in a step that is jitted itself, they are the first part of the state like
    the updates. Of the values of such a step nothing is known.
    """

    def one_worker(*args: Any) -> tuple[Any, ...]:
        heard: list[Given] = []

        def listened(*args: Any) -> tuple[Any, ...]:
            here = core.get_opaque_trace_state()
            with heard_updates() as given:
                state, *rest = step(*args)
            for x in given:
                inner = x._replace(value=None, params=None)  # no results of this trace
                heard.append(x if x.trace == here else inner)
            return state, [x.value for x in heard], [x.params for x in heard], rest

        program = jax.jit(listened, inline=True)
        found(_looked(program.trace(*args).jaxpr, args[:-1], heard))
        state, _, _, rest = program(*args)
        return state, *rest

    return one_worker


def _looked(program: Any, state: tuple[Any, ...], heard: Sequence[Given]) -> Looked:
    spec = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    sizes = [len(jax.tree.leaves(x)) for x in (spec, [x.value for x in heard])]
    states, end = sizes[0], sum(sizes)
    outs, ins = program.jaxpr.outvars, program.jaxpr.invars[:states]
    given = {id(var) for var in outs[end:]}
    own = [i for i, var in enumerate(ins) if id(var) in given]
    alike = {i for x in heard for i in places_like(spec, x.updates)}
    return Looked(program, spec, outs[states:end], own or sorted(alike), bool(heard))


def places_like(state: Any, updates: Any) -> range:
    """Places, among the state's leaves, of the first part like some updates.

    Nothing inside of an optimizer's state is: moments are like the params.
    """

    def stops(part: Any) -> bool:
        return _is_alike(part, updates) or is_optimizers(part)

    start = 0
    for part in jax.tree.leaves(state, is_leaf=stops):
        end = start + len(jax.tree.leaves(part))
        if _is_alike(part, updates):
            return range(start, end)
        start = end
    return range(0)


def is_optimizers(part: Any) -> bool:
    """Whether it is the state of a transformation, optax's or ours."""
    home = type(part).__module__.partition(".")[0]
    return hasattr(part, "_fields") and home in ("optax", "relaxjax")


def _is_alike(tree: Any, other: Any) -> bool:
    same = jax.tree.structure(tree) == jax.tree.structure(other)
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=False)
    return same and all(jnp.shape(x) == jnp.shape(y) for x, y in pairs)
