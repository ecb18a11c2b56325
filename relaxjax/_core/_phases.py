"""Phases that last many steps: switched between steps, on the host.

A warm-up, and what follows it, are two programs over one state. A conditional inside
the step would never overlap with compute on a GPU; so the phase is static: part of the
state's *structure*. `jax.jit` compiles each phase into its own program, and a switch
costs one compilation and nothing else.

    phase = number of ends that the count has reached

The count is an array and advances inside the step. `advance_phases` reads it and sets
the phase; `relaxjax.data_parallel` does so by itself, when an end may be due. A clock
that neither has seen is not `hosted`: its step then holds all phases that are to come,
and chooses by the count (`phased`). So a forgotten call costs overlap, and is not a
warm-up without an end. A state that is made anew inside the step has such clocks, and
a state that it takes the place of has to be like it (`renewed`).
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._cond import switch
from relaxjax._core.foreign._spans import spans

T = TypeVar("T")
TICK = "relaxjax-tick"
_TICKED: ContextVar[list[tuple[int, ...]]] = ContextVar("ticked")
_MADE: ContextVar[list["Clock"]] = ContextVar("made")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Clock:
    """A counter of steps with phases.

    Attributes:
      count: int32[], number of steps taken.
      ends: counts at which a phase ends and the next begins, in rising order (two may
        be equal). Static.
      phase: number of the current phase, from 0. Static.
      hosted: whether the host sets the phase between steps. Static.
    """

    count: jax.Array
    ends: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    phase: int = dataclasses.field(default=0, metadata={"static": True})
    hosted: bool = dataclasses.field(default=False, metadata={"static": True})

    def tick(self) -> "Clock":
        """One step later, in the same phase."""
        if self.hosted:
            _TICKED.get([]).append(self.ends[self.phase :])
        with jax.named_scope(TICK):
            return dataclasses.replace(self, count=optax.safe_increment(self.count))

    def at(self, count: int) -> "Clock":
        """The same counter, in the phase that this count belongs to."""
        return dataclasses.replace(self, phase=sum(end <= count for end in self.ends))


@contextmanager
def ticking() -> Iterator[list[tuple[int, ...]]]:
    """Collects, of each hosted clock that ticks in it, the ends that are to come."""
    token = _TICKED.set([])
    try:
        yield _TICKED.get()
    finally:
        _TICKED.reset(token)


def clock(*ends: int) -> Clock:
    """A clock at its start; an end at 0 has passed already."""
    made = Clock(jnp.zeros((), jnp.int32), ends).at(0)
    if ends:
        _MADE.get([]).append(made)
    return made


@contextmanager
def making() -> Iterator[list[Clock]]:
    """Collects the clocks of several phases that are made in it."""
    outer, made = _MADE.get([]), list[Clock]()
    token = _MADE.set(made)
    try:
        yield made
    finally:
        _MADE.reset(token)
        outer.extend(made)


def phased(update: Callable[..., Any]) -> Callable[..., Any]:
    """An update that reads the static phase of `state.clock`, for any loop.

    Where nobody sets the phase between the steps, the step holds every phase that is
    to come and takes the one that the count has reached; the state keeps its structure.
    """

    def in_any_loop(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        time = state.clock
        if time.hosted or time.phase == len(time.ends):
            return update(updates, state, params, **extra)

        def at(phase: int) -> Callable[[], Any]:
            def chosen() -> Any:
                now = dataclasses.replace(time, phase=phase)
                out, after = update(updates, state._replace(clock=now), params, **extra)
                kept = dataclasses.replace(after.clock, phase=time.phase)
                return out, after._replace(clock=kept)

            return chosen

        ends = jnp.asarray(time.ends[time.phase :])
        reached = jnp.sum(ends <= time.count, dtype=jnp.int32)
        phases = range(time.phase, len(time.ends) + 1)
        return switch(reached, _of_one_dtype([at(phase) for phase in phases]))

    return in_any_loop


def _of_one_dtype(choices: list[Callable[[], Any]]) -> list[Callable[[], Any]]:
    """The same updates and states; updates in a dtype that holds those of all."""
    kinds = [jax.eval_shape(choice)[0] for choice in choices]
    dtypes = jax.tree.map(_widest, *kinds)

    def cast(choice: Callable[[], Any]) -> Callable[[], Any]:
        def chosen() -> Any:
            out, state = choice()
            return jax.tree.map(lambda x, dtype: x.astype(dtype), out, dtypes), state

        return chosen

    return list(map(cast, choices))


def _widest(*kinds: jax.ShapeDtypeStruct) -> Any:
    return max((x.dtype for x in kinds), key=lambda dtype: dtype.itemsize)


def advance_phases(state: Any) -> Any:
    """Sets every clock in a state to the phase that its count has reached.

    For your own loop around your own `jax.jit`: call it before each step, so that each
    phase is a program of its own. Without it a step holds all phases and chooses by the
    count: the same numbers, but a longer compilation, and on a GPU nothing overlaps. A
    loop that has once called it must go on to do so. `relaxjax.data_parallel` does it
    by itself. It waits until the counts are computed; states without clocks pass at
    once.

    Args:
      state: any tree, with or without a worker axis.

    Returns:
      The same arrays; only the structure may have changed.

    Raises:
      ValueError: inside a jitted function, where the count is not known.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> params = {"w": jnp.ones((4, 4))}
      >>> tx = relaxjax.power_sgd("data", rank=1, start_after=1)
      >>> step = jax.vmap(lambda g, s: tx.update(g, s), axis_name="data")
      >>> gradient = jax.tree.map(lambda x: x[None], params)
      >>> state = jax.vmap(tx.init, axis_name="data")(gradient)
      >>> _, state = step(gradient, state)
      >>> state.clock.phase, relaxjax.advance_phases(state).clock.phase
      (0, 1)
    """
    return hosted(reached(state))


def reached(state: Any) -> Any:
    """The state with each clock in the phase of its count, hosted or not as it is."""
    return _map_clocks(lambda clock: clock.at(count_of(clock.count)), state)


def hosted(state: Any, by_host: bool = True) -> Any:
    """The state with clocks whose phases a host sets between the steps, or not."""

    def told(clock: Clock) -> Clock:
        return dataclasses.replace(clock, hosted=by_host and bool(clock.ends))

    return _map_clocks(told, state)


def renewed(state: Any) -> Any:
    """The state in the structure of a new one; the counts choose the phases."""
    return hosted(_map_clocks(lambda clock: clock.at(0), state), by_host=False)


def timed(look: Callable[[Any], T], state: Any) -> T:
    """`look` at a state that a host times, or at a renewed one where it makes one."""
    with making() as made:
        try:
            return look(hosted(state))
        except (TypeError, ValueError):  # a new clock beside one of another structure
            if not made:
                raise
    return look(renewed(state))


def clocks_of(state: Any) -> list[Clock]:
    """The clocks of a tree, in its order."""
    return [x for x in jax.tree.leaves(state, is_leaf=_is_clock) if _is_clock(x)]


def places_of_counts(state: Any) -> list[int]:
    """Places of the counts of clocks with several phases, among a tree's leaves."""
    parts = spans(state, _is_clock)
    return [at.start for x, at in parts if _is_clock(x) and x.ends]


def set_phases(state: Any, counts: list[int]) -> Any:
    """The state with each clock in the phase of its count; one count for each clock."""
    rest = iter(counts)
    return hosted(_map_clocks(lambda clock: clock.at(next(rest)), state))


def phase_starts(state: Any) -> Iterator[Any]:
    """Copies of a state, at the start of each phase that one of its clocks has."""
    ends = {end for clock in clocks_of(state) for end in clock.ends if end > 0}
    for start in [0, *sorted(ends)]:

        def begin(clock: Clock, start: int = start) -> Clock:
            count = jnp.full_like(clock.count, start)
            return dataclasses.replace(clock, count=count).at(start)

        yield _map_clocks(begin, jax.tree.map(lambda x: x.copy(), state))


def _map_clocks(fn: Callable[[Clock], Clock], state: Any) -> Any:
    return jax.tree.map(
        lambda x: fn(x) if isinstance(x, Clock) else x, state, is_leaf=_is_clock
    )


def _is_clock(x: Any) -> bool:
    return isinstance(x, Clock)


def count_of(count: Any) -> int:
    """A clock's count as a number, the same on all workers."""
    try:
        (count,) = jax.tree.leaves(count)  # flax.nnx wraps it
        if isinstance(count, jax.Array):
            count = count.addressable_shards[0].data
        return int(np.asarray(count).ravel()[0])
    except jax.errors.ConcretizationTypeError:
        raise ValueError(
            "advance_phases: called inside a jitted function, where counts are not "
            "known yet; call it between the steps"
        ) from None
