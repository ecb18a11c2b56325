"""Curves of the validation metric, and the first step at which one reaches a target."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from relaxjax.compare.kept._settings import Record

WITHIN = 0.02
"""The target is the baseline's final metric, worse by this part of it."""


class Curve(NamedTuple):
    """The validation metric of a method over its report seeds.

    Attributes:
      steps: steps at which every seed has a finite metric.
      mean: mean over the seeds.
      low: smallest value.
      high: largest value.
      seeds: number of seeds.
      diverged: whether the line ends early because a run diverged.
    """

    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    seeds: int
    diverged: bool


def curve(runs: Sequence[Record]) -> Curve:
    """The mean, smallest and largest metric of some runs at each step that all have.

    Args:
      runs: records of one method at one setting, one a seed.
    """
    points = [{row[0]: row[2] for row in run["curve"]} for run in runs]
    every = sorted(set().union(*points))
    steps = []
    for step in every:
        if any(point.get(step) is None for point in points):
            break
        steps.append(step)
    values = np.array([[point[step] for step in steps] for point in points], float)
    lost = len(steps) < len(every) or any(bool(run.get("diverged")) for run in runs)
    if not steps:
        return Curve([], [], [], [], len(runs), lost)
    mean, low, high = (
        f(axis=0).tolist() for f in (values.mean, values.min, values.max)
    )
    return Curve(steps, mean, low, high, len(runs), lost)


def target_of(study: Record, baseline: Sequence[Record]) -> float | None:
    """The validation metric that counts as reached.

    Args:
      study: what is in `study.json`; its `target`, if it has one, is returned.
      baseline: the baseline's report runs.

    Returns:
      Else the baseline's final metric, 2 % worse, as the mean over its seeds; None if
      it has no runs or one that diverged.
    """
    if study.get("target") is not None:
        return float(study["target"])
    finals: list[Any] = [run.get("validation") for run in baseline]
    if not finals or None in finals:
        return None
    final = float(np.mean(finals))
    down = WITHIN * abs(final)
    return final - down if study["task"]["better"] == "higher" else final + down


def to_target(rows: Sequence[Sequence[Any]], target: float, better: str) -> float:
    """The first step at which the running best metric reaches a target.

    Between two points of the curve the running best is a straight line.

    Args:
      rows: step, training loss and validation metric (None if not finite).
      target: the metric to reach.
      better: "higher" or "lower".

    Returns:
      The step; infinity if the target is not reached.

    Example:
      >>> from relaxjax.compare.kept._curves import to_target
      >>> to_target([[100, 1.9, 0.5], [200, 1.0, 0.9]], 0.8, "higher")
      175.0
    """
    sign = 1 if better == "higher" else -1
    known = [(row[0], sign * row[2]) for row in rows if row[2] is not None]
    goal = sign * target
    step, best = 0.0, -np.inf
    for later, value in known:
        if value >= goal:
            part = 1.0 if np.isinf(best) else (goal - best) / (value - best)
            return float(step + part * (later - step))
        step, best = later, max(best, value)
    return float("inf")


def median_to_target(
    runs: Sequence[Record], target: float | None, better: str
) -> tuple[float | None, int]:
    """The median over seeds of the steps to a target.

    Args:
      runs: records of one method, one a seed.
      target: the metric to reach; None: no target.
      better: "higher" or "lower".

    Returns:
      The median, None if it is not finite; and the number of runs that reach the
      target.
    """
    if target is None or not runs:
        return None, 0
    steps = [to_target(run["curve"], target, better) for run in runs]
    middle = float(np.median(steps))
    return middle if np.isfinite(middle) else None, int(np.isfinite(steps).sum())
