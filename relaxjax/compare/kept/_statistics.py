"""Differences of pairs, and Holm's correction for several methods.

Source: Student (1908), The Probable Error of a Mean; Holm (1979), A Simple Sequentially
Rejective Multiple Test Procedure.

A method and the baseline train from the same start on the same batches, seed by seed,
so that d_s = value_s - baseline_s has less noise than either. Of n pairs

    t = mean(d) / (sd(d) / sqrt(n)),   p = P(|T_{n-1}| >= |t|).

Holm goes through m methods from the smallest p upwards, and judges the i-th (from 0) at
the level alpha / (m - i), until one is not significant; that level holds for all after
it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from relaxjax._core.foreign._extra import extra

ALPHA = 0.05
SAME = 1e-6
"""Differences that vary less than this part of the values do not vary: float32."""


class Difference(NamedTuple):
    """The mean of paired differences, and what can be said about it.

    Attributes:
      mean: the mean of value - baseline, in units of the metric.
      low: lower end of the interval; None for a single pair.
      high: upper end.
      p: the two-sided p-value of a mean of zero; None for a single pair.
      pairs: number of pairs.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    pairs: int


def paired(
    values: Sequence[float], base: Sequence[float], *, alpha: float = ALPHA
) -> Difference:
    """The mean difference of pairs, its interval and its p-value (Student's t).

    Pairs that all differ by the same amount have no spread to judge by: p is 1 if that
    amount is zero, and None, as is the interval, if it is not.

    Args:
      values: finite values, one a seed.
      base: what they are compared with, in the same order.
      alpha: 1 - alpha is the coverage of the interval.

    Raises:
      ValueError: the two have different lengths, or no values.

    Example:
      >>> from relaxjax.compare.kept._statistics import paired
      >>> found = paired([3.0, 5.0, 4.0], [1.0, 2.0, 3.0])
      >>> f"{found.mean:.1f} [{found.low:.2f}, {found.high:.2f}] p={found.p:.3f}"
      '2.0 [-0.48, 4.48] p=0.074'
    """
    if len(values) != len(base) or not len(values):
        raise ValueError(
            f"pairs need equally many values, at least one: got {len(values)} values "
            f"and {len(base)} of the baseline"
        )
    first, second = np.asarray(values, float), np.asarray(base, float)
    differences = first - second
    mean, count = float(differences.mean()), len(differences)
    if count < 2:
        return Difference(mean, None, None, None, count)
    scale = SAME * max(np.abs(first).max(), np.abs(second).max())
    if np.ptp(differences) <= scale:
        same = bool(np.abs(differences).max() <= scale)
        end, p = (mean, 1.0) if same else (None, None)
        return Difference(mean, end, end, p, count)
    return _student(differences, alpha)


def _student(differences: np.ndarray, alpha: float) -> Difference:
    with extra("statistics need"):
        from scipy import stats
    mean, count = float(differences.mean()), len(differences)
    error = float(stats.sem(differences))
    width = float(stats.t.ppf(1 - alpha / 2, count - 1)) * error
    p = float(2 * stats.t.sf(abs(mean) / error, count - 1))
    return Difference(mean, mean - width, mean + width, p, count)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number; each stays below 1 and never falls.

    Args:
      p_values: one a method, in any order.

    Returns:
      Corrected values in the same order; a method is significant at alpha if its own
      is at most alpha.

    Example:
      >>> from relaxjax.compare.kept._statistics import holm
      >>> holm([0.01, 0.04, 0.03])
      [0.03, 0.06, 0.06]
    """
    result, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        result[index] = largest
    return result


def levels(p_values: Sequence[float], *, alpha: float = ALPHA) -> list[float]:
    """The level at which Holm's procedure judges each p-value.

    Args:
      p_values: one a method, in any order.
      alpha: the chance of one wrong word among all.

    Returns:
      Levels in the same order, between alpha / m and alpha. A p-value is at most its
      level exactly if it is significant.

    Example:
      >>> from relaxjax.compare.kept._statistics import levels
      >>> levels([0.04, 0.01], alpha=0.1)  # 0.01 at 0.1 / 2, then 0.04 at 0.1
      [0.1, 0.05]
    """
    result, level, count = [0.0] * len(p_values), 0.0, len(p_values)
    going = True
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        level = alpha / (count - rank) if going else level
        going = going and (count - rank) * p_values[index] <= alpha
        result[index] = level
    return result


def cost(metric: float | None, better: str) -> float:
    """The metric as something to minimize; what is missing costs most.

    Args:
      metric: a metric; None: it is missing or not finite.
      better: "higher" or "lower".
    """
    if metric is None or not math.isfinite(metric):
        return math.inf
    return -metric if better == "higher" else metric


def is_worse(metric: float | None, than: float, better: str) -> bool:
    """Whether a metric is worse than another."""
    return cost(metric, better) > cost(than, better)
