"""One worker's step, traced once: mapped over the workers, and followed before trust.

JAX maps a jitted step from its program for one worker, under `jax.vmap` too. So that
program, in which all collectives stand, is at hand without a trace of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.extend import core

from relaxjax._core._jaxprs import CLOSED
from relaxjax._core.foreign._spans import spans
from relaxjax._core.traced._asked import heard_updates
from relaxjax._core.traced._marks import Given, Station

T = TypeVar("T")


class Looked(NamedTuple):
    """A traced step (state, batch) -> (state, ...).

    Attributes:
      program: the closed jaxpr.
      state: the state's shapes and dtypes, by argument.
      given: what relaxations are given and make, as variables of the program.
      places: those of the params, among the state's leaves.
      relaxes: whether there are relaxations in it.
      alike: the parts of the state of which one may be the params, if that is unknown.
    """

    program: Any
    state: tuple[Any, ...]
    given: Sequence[Given]
    places: Sequence[int]
    relaxes: bool
    alike: Sequence[Sequence[int]] = ()

    @property
    def states(self) -> int:
        """The number of the state's leaves."""
        return len(jax.tree.leaves(self.state))

    @property
    def values(self) -> list[Any]:
        """What relaxations are given as `value=`."""
        return jax.tree.leaves([x.value for x in self.given])

    def of(self, outs: Sequence[T], some: Any) -> list[T]:
        """Facts about some results, taken from the facts about all of them."""
        pairs = zip(self.program.jaxpr.outvars, outs, strict=True)
        known = {id(var): x for var, x in pairs}
        return [known[id(var)] for var in jax.tree.leaves(some)]

    def places_of(self, variables: Any) -> list[int]:
        """Places of those variables that are leaves of the state."""
        given = {id(var) for var in jax.tree.leaves(variables)}
        ins = self.program.jaxpr.invars[: self.states]
        return [i for i, var in enumerate(ins) if id(var) in given]


def looked_at(
    step: Callable[..., tuple[Any, ...]], found: Callable[[Looked], None]
) -> Callable[..., tuple[Any, ...]]:
    """The same `step(*state, batch) -> (state, ...)`; where traced, it is `found`.

    The params are those that relaxations are given; where these are not an argument's
    own, as in a step that is jitted itself, they are the first part of the state like
    the updates. What is given inside of such a step, or of a loop, is not known.
    """

    def one_worker(*args: Any) -> tuple[Any, ...]:
        heard: list[Heard] = []

        def listened(*args: Any) -> tuple[Any, ...]:
            here, parts = core.get_opaque_trace_state(), []

            def hear(given: Given) -> None:
                heard.append(Heard.of(given, own=given.trace == here))
                if given.trace == here:
                    parts.append(_arrays(given))

            with heard_updates(hear):
                state, *rest = step(*args)
            return state, parts, rest

        program = jax.jit(listened, inline=True)
        traced = program.trace(*args)
        count = len(jax.tree.leaves(args))
        found(_looked(traced, _given_alone(traced.jaxpr, count), args[:-1], heard))
        state, _, rest = program(*args)
        return state, *rest

    return one_worker


def _given_alone(program: Any, count: int) -> Any:
    """The program with the last `count` inputs, which are the arguments.

    Arrays of a trace around the step, such as a rate in a jitted loop, are its first
    inputs to JAX. They are constants here: the same on all workers.
    """
    jaxpr = program.jaxpr
    first = len(jaxpr.invars) - count
    constants = [*jaxpr.invars[:first], *jaxpr.constvars]
    return CLOSED(
        jaxpr.replace(constvars=constants, invars=jaxpr.invars[first:]),
        [*(x.aval for x in jaxpr.invars[:first]), *program.consts],
    )


class Heard(NamedTuple):
    """What is kept of `Given` after its trace: no tracer.

    Attributes:
      at: the relaxation.
      updates: shapes and dtypes of what it is given.
      leaves: the numbers of arrays in the parts of `Given`; None in another trace.
    """

    at: Station
    updates: Any
    leaves: Sequence[int] | None

    @classmethod
    def of(cls, given: Given, *, own: bool) -> "Heard":
        """What is known of it."""
        leaves = [*map(len, _arrays(given))] if own else None
        return cls(given.at, jax.tree.map(_kind, given.updates), leaves)


def _arrays(given: Given) -> list[list[jax.Array]]:
    """The arrays of the trace in each part; names and whatever else is left out."""
    parts = given.value, given.updates, given.state, given.params, *given.made
    return [
        [x for x in jax.tree.leaves(part) if isinstance(x, jax.Array)] for part in parts
    ]


def _kind(x: Any) -> Any:
    return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))


def _looked(
    traced: Any, program: Any, state: tuple[Any, ...], heard: Sequence[Heard]
) -> Looked:
    spec = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    outs = program.jaxpr.outvars
    results = iter(outs[len(jax.tree.leaves(traced.out_info[0])) :])
    given = []
    for x in heard:
        if x.leaves is not None:
            *parts, made, after = ([*islice(results, count)] for count in x.leaves)
            given.append(Given(x.at, *parts, made=(made, after), trace=None))
    found = Looked(program, spec, given, (), bool(heard))
    if places := found.places_of([x.params for x in given]):
        return found._replace(places=places)
    parts = [[*parts_like(spec, x.updates)] for x in heard]
    first = {i for several in parts for part in several[:1] for i in part}
    return found._replace(
        places=sorted(first), alike=parts[0] if len(parts) == 1 else ()
    )


def places_like(state: Any, updates: Any) -> range:
    """Places, among the state's leaves, of the first part like some updates."""
    return next(parts_like(state, updates), range(0))


def parts_like(state: Any, updates: Any) -> Iterator[range]:
    """Places of all parts like some updates.

    Nothing inside of an optimizer's state is: moments are like the params.
    """

    def stops(part: Any) -> bool:
        return _is_alike(part, updates) or is_optimizers(part)

    for part, at in spans(state, stops):
        if _is_alike(part, updates):
            yield at


def is_optimizers(part: Any) -> bool:
    """Whether it is the state of a transformation, optax's or ours."""
    home = type(part).__module__.partition(".")[0]
    return hasattr(part, "_fields") and home in ("optax", "relaxjax")


def _is_alike(tree: Any, other: Any) -> bool:
    same = jax.tree.structure(tree) == jax.tree.structure(other)
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=False)
    return same and all(jnp.shape(x) == jnp.shape(y) for x, y in pairs)
