"""Phases from step to step: a state's counts are read when an end may be reached."""

import math
from threading import RLock
from typing import Any

import jax

from relaxjax._core._checks import is_any_traced
from relaxjax._core._phases import clocks_of, count_of, places_of_counts, reached


class Phases:
    """Advances the phases of a state from step to step, rarely reading its counts.

    Reading a count waits for the step before. A count that is the very array which the
    last step returned has grown by one at most since it was read; so it is read again
    only when an end may have been reached.

    Attributes:
      lock: held from `advanced` to `returned`, which belong together.
    """

    def __init__(self) -> None:
        self._places: dict[Any, list[int]] = {}  # positions of counts, by structure
        self._returned: list[Any] = []
        self._steps_left: float = 0
        self.lock = RLock()

    def advanced(self, state: Any) -> Any:
        """The state with the phases that its counts say."""
        counts = self._counts(state)
        if not counts or is_any_traced(counts):  # in a traced function counts choose
            return state
        self._steps_left -= 1
        if self._steps_left > 0 and _same(counts, self._returned):
            return state
        state = reached(state)
        ahead = [
            end - count_of(clock.count)
            for clock in clocks_of(state)
            for end in clock.ends[clock.phase :]
        ]
        self._steps_left = min(ahead, default=math.inf)
        return state

    def returned(self, state: Any, *, several: bool = False) -> None:
        """Remembers the counts that the step returned; `several` steps may be in it."""
        counts = self._counts(state)
        self._returned = [] if is_any_traced(counts) else counts
        if several and self._steps_left < math.inf:
            self._steps_left = 0

    def _counts(self, state: Any) -> list[Any]:
        """Counts of the clocks that have several phases."""
        leaves, structure = jax.tree.flatten(state)
        if structure not in self._places:
            self._places[structure] = places_of_counts(state)
        return [leaves[place] for place in self._places[structure]]


def _same(some: list[Any], others: list[Any]) -> bool:
    """Whether two lists hold the very same arrays."""
    return list(map(id, some)) == list(map(id, others))
