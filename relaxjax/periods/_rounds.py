"""Rounds of gossip: a calendar whose meetings are numbered, as graphs take turns.

With a whole number the state is a count of steps, modulo those of all rounds; else it
is that of the schedule (`relaxjax.periods._calendar`), which counts its meetings.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._merge_rules import EQUAL, RESET, Leaf, Merge, rebuild
from relaxjax._core.traced._silence import due
from relaxjax.periods._calendar import Asked, Every, Meetings, Period, calendar


def _counted(leaf: Leaf, merge: Merge) -> np.ndarray:
    """Rounds begin anew with another graph; the steps that a schedule counts go on."""
    rule = EQUAL if leaf.inside else RESET
    assert rule.rebuilt is not None
    return rule.rebuilt(leaf, merge)


COUNTER = rebuild(_counted)
"""How the counter merges when the number of workers changes."""


class _Steady(NamedTuple):
    every: int
    turns: int

    def start(self) -> jax.Array:
        """The counter of the first state."""
        return jnp.zeros((), jnp.int32)

    def due(self, now: Any) -> bool | jax.Array:
        """Whether a round ends with this step; a bool of Python where that is known."""
        return self.every == 1 or due(now, self.every)

    def number(self, now: Any) -> jax.Array:
        """The number of the round."""
        return now // self.every

    def length(self, now: Any) -> int:
        """The number of steps of the round."""
        del now
        return self.every

    def after(self, now: Any) -> Any:
        """The counter after a step."""
        return (now + 1) % (self.every * self.turns)  # so that none is too large


class _Scheduled(NamedTuple):
    asked: Asked
    turns: int

    def start(self) -> Meetings:
        return self.asked.start()

    def due(self, now: Any) -> bool | jax.Array:
        return self.asked.due(now)

    def number(self, now: Any) -> jax.Array:
        return now.met % self.turns

    def length(self, now: Any) -> jax.Array:
        return now.next - now.begun

    def after(self, now: Any) -> Any:
        return self.asked.after(now)


Rounds = _Steady | _Scheduled
"""When rounds end, and their numbers, by a counter of a method's state."""


def rounds(caller: str, name: str, every: Period, turns: int) -> Rounds:
    """The rounds of a graph, which has so many that take turns."""
    times = calendar(caller, name, every)
    if isinstance(times, Every):
        return _Steady(times.steps, turns)
    assert isinstance(times, Asked)
    return _Scheduled(times, turns)
