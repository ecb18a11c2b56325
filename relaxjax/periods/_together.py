"""Several periods in one state, by name: of params, say, and of moments.

Whole numbers share one count, modulo all of them. If one is a schedule, each has the
counters of one (`relaxjax.periods._calendar`), a whole number as a constant schedule.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._checks import require_whole
from relaxjax._core.traced._silence import due
from relaxjax.periods._calendar import Asked, Meetings, Period


class _Steady(NamedTuple):
    every: dict[str, int]

    def start(self) -> jax.Array:
        """The counter of the first state."""
        return jnp.zeros((), jnp.int32)

    def due(self, now: Any, name: str) -> bool | jax.Array:
        """Whether this one meets after this step; False of Python if it is silent."""
        return due(now, self.every[name])

    def after(self, now: Any) -> Any:
        """The counter after a step."""
        return (now + 1) % min(math.lcm(*self.every.values()), 2**31 - 1)

    def alike(self) -> dict[str, int]:
        """Periods: those that divide that of "params" meet whenever it does."""
        return self.every


class _Scheduled(NamedTuple):
    asked: dict[str, Asked]
    whole: dict[str, int]

    def start(self) -> dict[str, Meetings]:
        return {name: one.start() for name, one in self.asked.items()}

    def due(self, now: Any, name: str) -> bool | jax.Array:
        return self.asked[name].due(self._own(now, name))

    def after(self, now: Any) -> Any:
        return {n: one.after(self._own(now, n)) for n, one in self.asked.items()}

    def _own(self, now: Any, name: str) -> Meetings:
        """The counters; a whole number is one, whoever has set another end."""
        one = now[name]
        if name not in self.whole:
            return one
        return one._replace(next=one.begun + self.whole[name])

    def alike(self) -> dict[str, int]:
        first = self.asked["params"].schedule
        return {
            name: 1 if one.schedule is first else 2 for name, one in self.asked.items()
        }


Together = _Steady | _Scheduled
"""When each of several meets, by a counter of a method's state."""


def together(caller: str, periods: Mapping[str, Period]) -> Together:
    """When each of these meets."""
    for name, period in periods.items():
        if not callable(period):
            require_whole(caller, f"periods[{name!r}]", period)
    whole = {name: x for name, x in periods.items() if not callable(x)}
    if len(whole) == len(periods):
        return _Steady(whole)
    return _Scheduled(
        {
            name: Asked(
                caller, f"periods[{name!r}]", x if callable(x) else _constant(x)
            )
            for name, x in periods.items()
        },
        whole,
    )


def _constant(period: int) -> Any:
    return lambda step: period
