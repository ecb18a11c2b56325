"""The steps after which workers meet: every H-th, or when a schedule says.

A schedule is a function of the number of steps that are taken. It is asked at the
start, and then right after each meeting, for the number of steps to the next one:

    t_0 = 0,    t_{k+1} = t_k + max(1, floor(H(t_k)))

The state holds t_{k+1}, so that a run that goes on from a checkpoint meets when it
would have met, and nothing is compiled anew when the period changes. A period that is
not a number (NaN) is 1: workers that do not know how long to wait do not wait.

With a whole number the state is a count of the steps since the last meeting.

Cost: four counters for one; the schedule is computed where workers meet.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._checks import require_whole
from relaxjax._core._cond import when
from relaxjax._core._merge_rules import EQUAL
from relaxjax._core.traced._silence import due, due_at

Schedule = Callable[[Any], Any]
"""From the number of steps taken to the number of those to the next meeting."""
Period = int | Schedule
"""A number of steps, or a schedule."""
LONGEST = 2**30  # steps


class Meetings(NamedTuple):
    """The counters of a method whose workers meet when a schedule says.

    Attributes:
      taken: int32, the number of steps taken; equal on all workers, like the others.
      begun: the number at the last meeting.
      next: the number after which the workers meet next.
      met: the number of meetings.
    """

    taken: Annotated[jax.Array, EQUAL]
    begun: Annotated[jax.Array, EQUAL]
    next: Annotated[jax.Array, EQUAL]
    met: Annotated[jax.Array, EQUAL]


class Every(NamedTuple):
    """Every so many steps."""

    steps: int

    def start(self) -> jax.Array:
        """The counter of the first state: no step since the last meeting."""
        return jnp.zeros((), jnp.int32)

    def step(self, now: jax.Array, meet: Callable[[Any], Any], same: Any) -> Any:
        """`meet(same)` if they meet after this step, else `same`; the next counter.

        They meet after the last step, or past it, if another period began.
        """
        last = due(now, self.steps, since=now)
        return when(last, meet, same), jnp.where(last, 0, now + 1)

    def length(self, count: int | jax.Array) -> int:
        """The number of steps to the next meeting, after one with this count."""
        del count
        return self.steps


class Asked(NamedTuple):
    """When a schedule says, which is asked after each meeting."""

    caller: str
    name: str
    schedule: Schedule

    def start(self) -> Meetings:
        """Before the first step."""
        # Three arrays, as they are donated apart.
        taken, begun, met = (jnp.zeros((), jnp.int32) for _ in range(3))
        return Meetings(taken, begun, self.length(0), met)

    def step(self, now: Meetings, meet: Callable[[Any], Any], same: Any) -> Any:
        """Meets after the step that the state holds, or past it."""

        def both(before: tuple[Any, Meetings]) -> tuple[Any, Meetings]:
            return meet(before[0]), self._begun(before[1])

        return when(self.due(now), both, (same, now._replace(taken=now.taken + 1)))

    def due(self, now: Meetings) -> bool | jax.Array:
        """Whether they meet after this step; False of Python in a silent program."""
        return due_at(now.taken, now.next)

    def after(self, now: Meetings) -> Meetings:
        """The counters after a step, for a method that has met by `due`."""
        return self.step(now, lambda same: same, ())[1]

    def _begun(self, now: Meetings) -> Meetings:
        """Right after a meeting."""
        longest = jnp.iinfo(jnp.int32).max - now.taken
        following = now.taken + jnp.minimum(self.length(now.taken), longest)
        return Meetings(now.taken, now.taken, following, now.met + 1)

    def length(self, count: int | jax.Array) -> jax.Array:
        """int32, at least 1."""
        steps = self._asked(jnp.asarray(count, jnp.int32))
        kind = jnp.int32 if _is(jnp.integer, steps) else jnp.float32
        bounded = jnp.where(steps >= 1, jnp.minimum(steps, kind(LONGEST)), 1)
        return bounded.astype(jnp.int32)

    def _asked(self, count: jax.Array) -> jax.Array:
        try:
            steps = jnp.asarray(self.schedule(count))
        except jax.errors.ConcretizationTypeError as error:
            raise ValueError(
                f"{self.caller}: {self.name} looks at the step with Python (if, int() "
                "or a list), and the step is known on the device alone: compute with "
                "jax.numpy, as jnp.where(step < 1000, 1, 8), or give the periods as "
                "data, relaxjax.periods.table([(0, 1), (1000, 8)])"
            ) from error
        if steps.shape or not (_is(jnp.integer, steps) or _is(jnp.floating, steps)):
            raise ValueError(
                f"{self.caller}: {self.name} must return one number of steps, and "
                f"returned {steps.dtype}{list(steps.shape)}"
            )
        return steps


def _is(kind: Any, number: jax.Array) -> bool:
    return jnp.issubdtype(number.dtype, kind)


Calendar = Every | Asked
"""When workers meet, by a counter of a method's state."""


def calendar(caller: str, name: str, period: Period, least: int = 1) -> Calendar:
    """When workers meet, of a number of steps or a schedule; refuses anything else."""
    if callable(period):
        return Asked(caller, name, period)
    require_whole(caller, name, period, least)
    return Every(period)


def is_scheduled(state: Any) -> bool:
    """Whether a schedule says when the workers of a state meet."""
    leaves = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, Meetings))
    return any(isinstance(x, Meetings) for x in leaves)


def shifted(period: Period, start: int) -> Period:
    """The period of what begins at a step, and counts its own steps from there."""
    return (lambda step: period(step + start)) if callable(period) else period
