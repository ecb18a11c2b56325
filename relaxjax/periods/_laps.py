"""Laps: periods in which parts of a model meet by turns, evenly spaced.

    part k of P meets in step (k + 1) H / P of each lap of H steps

A schedule is asked at the end of each lap, for the length of the next one. Its period
is taken up to a multiple of P, and to what the method needs at least.

With a whole number the state is the step of the lap; else it is that of the schedule
(`relaxjax.periods._calendar`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax.periods._calendar import Asked, Meetings, Period


class _Steady(NamedTuple):
    steps: int
    parts: int

    def start(self) -> jax.Array:
        """The counter of the first state."""
        return jnp.zeros((), jnp.int32)

    def place(self, now: Any) -> tuple[jax.Array, int]:
        """The number of this step in its lap, from 1, and the steps between parts."""
        return now % self.steps + 1, self.steps // self.parts

    def after(self, now: Any, place: jax.Array) -> Any:
        """The counter after this step."""
        del now
        return place % self.steps


class _Scheduled(NamedTuple):
    asked: Asked
    parts: int
    least: int

    def start(self) -> Meetings:
        return self.asked.start()

    def place(self, now: Any) -> tuple[jax.Array, jax.Array]:
        now = self._whole(now)
        return now.taken - now.begun + 1, (now.next - now.begun) // self.parts

    def after(self, now: Any, place: jax.Array) -> Any:
        del place
        return self.asked.after(self._whole(now))

    def _whole(self, now: Any) -> Any:
        """The lap that has begun, as long as parts need it, whoever has set its end."""
        lasts = _whole_lap(now.next - now.begun, self.parts, self.least)
        left = jnp.iinfo(jnp.int32).max - now.begun
        return now._replace(next=now.begun + jnp.minimum(lasts, left))


Laps = _Steady | _Scheduled
"""Where a method stands in its lap, by a counter of its state."""


def laps(caller: str, name: str, period: Period, parts: int, least: int) -> Laps:
    """Laps of a period in parts; under a schedule each part has `least` steps or more.

    A whole number is a multiple of `parts`, and was checked.
    """
    if not callable(period):
        return _Steady(period, parts)
    own = Asked(caller, name, period)

    def whole(step: jax.Array) -> jax.Array:
        return _whole_lap(own.length(step), parts, least)

    return _Scheduled(Asked(caller, name, whole), parts, least)


def _whole_lap(steps: Any, parts: int, least: int) -> Any:
    """Steps, or as many more as `parts` of at least `least` steps each need."""
    return parts * jnp.maximum(-(-steps // parts), least)
