"""Levels by two thresholds: up above the one, down below the other, else as it is.

    place <- place + 1      where the reading is at least `up`
    place <- place - 1      where it is at most `down`
    level  = levels[place]

With the agreement of workers r = |mean_i D_i|^2 / mean_i |D_i|^2 as the reading it is
GIFT's idea (Chen et al.) with two floats in place of a second model: workers that agree
may meet more seldom. Between the thresholds nothing changes, so that a reading which
trembles about one of them moves the level once.

Cost: two comparisons.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from relaxjax._core._checks import require_whole
from relaxjax.controllers._controller import Controller, controller

_CALLER = "controllers.thresholds"


def thresholds(
    reading: str,
    levels: Sequence[int],
    *,
    up: float,
    down: float,
    start: int | None = None,
    dwell: int = 0,
) -> Controller:
    """One level further where a reading is high, and one back where it is low.

    Args:
      reading: the name of the reading.
      levels: the levels in their order, such as periods (4, 8, 16).
      up: from this reading on it goes to the next level.
      down: up to this reading it goes to the level before; less than `up`.
      start: the first level; None: the first of `levels`.
      dwell: steps between two changes at least.

    Returns:
      A controller.

    Raises:
      ValueError: `down` is not less than `up`; no levels, or the same one twice;
        `start` is not one of them; `dwell < 0`.

    Example:
      >>> from relaxjax import controllers
      >>> periods = controllers.thresholds("agreement", (4, 8, 16), up=0.7, down=0.3)
      >>> record = periods.init()
      >>> for step, r in [(4, 0.8), (12, 0.6), (20, 0.9), (36, 0.1)]:
      ...     record = periods.update(record, step, {"agreement": r})
      >>> record.table
      [(0, 4), (4, 8), (20, 16), (36, 8)]
    """
    order = list(levels)
    if not order or len(set(order)) < len(order):
        raise ValueError(
            f"{_CALLER}: levels={order} must be one or more, all different"
        )
    for k, level in enumerate(order):
        require_whole(_CALLER, f"levels[{k}]", level, 0)
    if not down < up:
        raise ValueError(
            f"{_CALLER}: down={down} must be less than up={up}: a reading between them "
            "leaves the level as it is"
        )
    first = order[0] if start is None else start
    if first not in order:
        raise ValueError(f"{_CALLER}: start={start} is not one of levels={order}")

    def rule(memory: Any, level: Any, told: Mapping[str, Any]) -> tuple[Any, int]:
        place, value = order.index(level), told[reading]
        place += (value >= up) - (value <= down)
        return memory, order[min(max(place, 0), len(order) - 1)]

    return controller(rule, start=first, reads=[reading], dwell=dwell, caller=_CALLER)
