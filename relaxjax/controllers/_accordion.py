"""Accordion: much where the gradient's norm changes, little where it does not.

Source: Agarwal et al. 2021 (arXiv:2010.16248). With g_l the sum of a leaf's mean
gradients over a period, and g_l' that of the period before:

    r_l = | |g_l'| - |g_l| | / |g_l'|           (9 where |g_l'| is 0)
    level_l = low where r_l < below, else high

`high` in the first period, and for all leaves after a period in which the learning rate
fell. The authors' program has `below` = 1/2 and asks every ten epochs, five for models
of language. Their pairs of ranks are (1, 2) and (1, 4).

A threshold of its own for the way back, `above`, keeps a leaf as it is between the two.

Cost: a comparison for each leaf.
"""

from collections.abc import Mapping
from typing import Any

from relaxjax._core._checks import require_whole
from relaxjax.controllers._controller import Controller, controller
from relaxjax.controllers._record import Level

_CALLER = "controllers.accordion"
_NEW = 9.0  # the change of a gradient that was 0, as the authors' program has it


def accordion(
    low: int, high: int, *, below: float = 0.5, above: float | None = None
) -> Controller:
    """Two levels for each leaf, by how much the norm of its gradient changes.

    It reads `norms`, of the gradients that are added up over a period, by the names of
    leaves (`relaxjax.controllers.norms_of_sums`). A reading `learning_rate` may stand
    beside them: the rate of a schedule with steps. One that always falls asks for
    `high` at each reading.

    Args:
      low: the level of leaves whose norm changes little, such as rank 1.
      high: the level of the others, and of the first period.
      below: a smaller relative change is little.
      above: a change of at least this much is not; None: the same as `below`. Between
        the two the last level holds.

    Returns:
      A controller. Its level is `high` until the first reading, and then one for each
      leaf, by name: `rank=dict(record.table)` of `relaxjax.power_sgd`.

    Raises:
      ValueError: `low` or `high` is below 1; `above` is less than `below`.

    Example:
      >>> from relaxjax import controllers
      >>> ranks = controllers.accordion(1, 4)
      >>> record = ranks.init()
      >>> record = ranks.update(record, 100, {"norms": {"w": 10.0, "v": 10.0}})
      >>> record = ranks.update(record, 200, {"norms": {"w": 6.0, "v": 4.0}})
      >>> record.table[-1]
      (200, {'v': 4, 'w': 1})
    """
    require_whole(_CALLER, "low", low)
    require_whole(_CALLER, "high", high)
    upper = below if above is None else above
    if upper < below:
        raise ValueError(
            f"{_CALLER}: above={above} must be below={below} or more: a change between "
            "them leaves the level as it is"
        )

    def rule(memory: Any, level: Level, told: Mapping[str, Any]) -> tuple[Any, Level]:
        norms, rate = dict(sorted(told["norms"].items())), told.get("learning_rate")
        last = level if isinstance(level, Mapping) else dict.fromkeys(norms, high)
        if memory is None or _fell(memory.get("learning_rate"), rate):
            return told, dict.fromkeys(norms, high)
        change = {k: _change(memory["norms"].get(k, 0.0), x) for k, x in norms.items()}
        return told, {
            k: low if r < below else high if r >= upper else last.get(k, high)
            for k, r in change.items()
        }

    return controller(rule, start=high, reads=["norms"], caller=_CALLER)


def _change(before: float, now: float) -> float:
    """r, the relative change of a norm."""
    return abs(before - now) / before if before else _NEW


def _fell(before: float | None, now: float | None) -> bool:
    """Whether a learning rate fell, where both are known."""
    return before is not None and now is not None and now < before
