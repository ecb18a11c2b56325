"""Paired comparisons with a baseline, of few runs.

    d_s = worse(method, s) - worse(baseline, s)      for each seed s of both
    mean(d) +- t_{0.975, n-1} sem(d)                 its 95 % interval (Student's t)
    p from the same t, two-sided; Holm's step-down over all methods of a study

Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian
Journal of Statistics, 1979.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.05
LEAST = 3  # seeds for a verdict


class Difference(NamedTuple):
    """How much worse a method is than the baseline; positive is worse.

    Attributes:
      mean: the mean of the pairs.
      low: lower end of the 95 % interval; None: a single pair has none.
      high: its upper end, likewise.
      p: the probability of a mean at least so far from 0 by chance, likewise.
      pairs: number of seeds.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    pairs: int


def difference(
    metrics: Mapping[int, float], base: Mapping[int, float], better: str
) -> Difference | None:
    """The paired difference over the seeds that both have; None: there are none.

    Args:
      metrics: a method's metrics by seed.
      base: the baseline's.
      better: "higher" or "lower".

    Example:
      >>> found = difference({0: 1.2, 1: 1.4}, {0: 1.0, 1: 1.1}, "lower")
      >>> round(found.mean, 3), found.pairs
      (0.25, 2)
    """
    from scipy import stats  # of the extra `cli`

    seeds = sorted(metrics.keys() & base.keys())
    if not seeds:
        return None
    sign = -1.0 if better == "higher" else 1.0
    d = sign * np.array([metrics[s] - base[s] for s in seeds])
    mean = float(d.mean())
    if len(d) < 2:
        return Difference(mean, None, None, None, 1)
    error = float(stats.sem(d))
    half = float(stats.t.ppf(1 - LEVEL / 2, len(d) - 1)) * error
    if error:
        p = float(2 * stats.t.sf(abs(mean) / error, len(d) - 1))
    else:
        p = 0.0 if mean else 1.0
    return Difference(mean, mean - half, mean + half, p, len(d))


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Adjusted probabilities; None stays and is not counted.

    Example:
      >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
      [0.03, 0.06, 0.06]
    """
    order = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    highest = 0.0
    for rank, (p, i) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        adjusted[i] = highest
    return adjusted


def verdict(found: Difference | None, adjusted: float | None, diverged: int) -> str:
    """A difference in words.

    Args:
      found: the difference.
      adjusted: its probability after Holm's correction.
      diverged: number of report runs that diverged.
    """
    if diverged:
        return f"diverged in {diverged} runs" if diverged > 1 else "diverged in a run"
    if found is None:
        return "not run"
    if found.pairs < LEAST or adjusted is None or not math.isfinite(found.mean):
        return f"no verdict from {found.pairs} seeds"
    if adjusted >= LEVEL:
        return "not distinguishable"
    return "worse" if found.mean > 0 else "better"


def cost(metric: float | None, better: str) -> float:
    """The metric as something to minimize; what is missing costs most."""
    if metric is None or not math.isfinite(metric):
        return math.inf
    return -metric if better == "higher" else metric
