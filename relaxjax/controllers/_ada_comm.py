"""AdaComm: periods that shorten as the loss falls.

Source: Wang and Joshi 2018 (arXiv:1810.08313). With F the training loss, a mean over
the workers, eta the learning rate, and F_0, eta_0, tau_0 at the first reading:

    tau = ceil( sqrt( (eta_0 F) / (eta F_0) ) tau_0 )
    tau = ceil( gamma tau_before )      where that is no less, and eta did not fall

    1 <= tau <= most

    tau stays                           where eta F_0 = 0

So workers meet seldom at first and often later, which is the other direction than that
of `relaxjax.periods.qsr`. A language model's loss never comes near 0, so that the root
alone ends at about a half.

What is within 1e-9 of a whole number, relative to it, is taken for it.

Cost: a root.
"""

import math
from collections.abc import Mapping
from typing import Any

from relaxjax._core._checks import require_fraction, require_whole
from relaxjax.controllers._controller import Controller, controller
from relaxjax.controllers._record import Level

_CALLER = "controllers.ada_comm"


def ada_comm(
    start: int, *, most: int = 2**30, shrink: float = 0.5, dwell: int = 0
) -> Controller:
    """The period of local steps, by the loss over that of the first reading.

    It reads `loss`, and `learning_rate` where that is given. The first reading is F_0
    and eta_0, so it comes after a warm-up. Where the rate falls to 0 only `most` bounds
    the period.

    Args:
      start: tau_0, the period until the second reading.
      most: the longest period.
      shrink: gamma, by which the period shortens where the loss does not say so; 1:
        then it stays.
      dwell: steps between two changes at least.

    Returns:
      A controller, whose level is a period: `relaxjax.periods.table(record.table)`.

    Raises:
      ValueError: `start < 1`, `most < start`, `shrink` is not in (0, 1], `dwell < 0`.

    Example:
      >>> from relaxjax import controllers
      >>> periods = controllers.ada_comm(10)
      >>> record = periods.init()
      >>> for step, loss in [(100, 4.0), (200, 2.56), (300, 1.0), (400, 1.0)]:
      ...     record = periods.update(record, step, {"loss": loss})
      >>> record.table
      [(0, 10), (200, 8), (300, 5), (400, 3)]
    """
    require_whole(_CALLER, "start", start)
    require_whole(_CALLER, "most", most, start)
    require_fraction(_CALLER, "shrink", shrink, "; 0.5 is the paper's, 1 turns it off")

    def rule(memory: Any, level: Any, told: Mapping[str, Any]) -> tuple[Any, Level]:
        loss, rate = told["loss"], told.get("learning_rate", 1.0)
        if memory is None:
            return {"first": (loss, rate), "rate": rate}, start
        if not memory["first"][0] * rate:
            return memory, level
        tau = _period(start, most, memory["first"], (loss, rate))
        if tau >= level and rate >= memory["rate"]:
            tau = min(level, _up(shrink * level))
        return memory | {"rate": rate}, tau

    return controller(rule, start=start, reads=["loss"], dwell=dwell, caller=_CALLER)


def _period(
    start: int, most: int, first: tuple[float, float], now: tuple[float, float]
) -> int:
    """tau by the root, of (loss, learning rate) at first and now."""
    share = max(now[0] * first[1] / (first[0] * now[1]), 0.0)
    return max(1, _up(min(math.sqrt(share) * start, most)))


def _up(x: float) -> int:
    return math.ceil(x * (1 - 1e-9))
