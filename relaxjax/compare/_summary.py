"""From the records of a study to the rows of its report.

chosen      the setting of a method's report runs
difference  of test metrics, seed by seed, from the baseline's
target      the baseline's last validation metric, less 2 % (or as asked)
reached     the first step whose best validation metric so far is at the target,
            interpolated between the points of the curve; the median over seeds
bytes       steps x bytes of a mean step, counted in the program
seconds     steps x predicted seconds of a step, on each network
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relaxjax.compare._records import Record
from relaxjax.compare._statistics import Difference, cost, difference, holm, verdict

_SLACK = 0.02


@dataclass(frozen=True, kw_only=True)
class Row:
    """A method in the report; its first one is the baseline.

    Attributes:
      method: its label.
      learning_rate: the rate that was chosen; None: it has not been.
      options: options that were chosen.
      tests: test metrics by seed.
      mean: their mean; None: there are none.
      spread: their standard deviation; None: there are fewer than two.
      difference: how much worse than the baseline; None for the baseline.
      adjusted: the difference's probability, after Holm's correction.
      verdict: the difference in words.
      tuned: number of tuning runs.
      stopped: how many of them were stopped early.
      diverged: how many report runs diverged.
      bytes_per_step: bytes that the busiest worker sends in a mean step.
      steps_to_target: median over seeds; None: not reached by most.
      seconds_to_target: predicted, by network.
      curve: step and validation metric, the mean over seeds.
    """

    method: str
    learning_rate: float | None
    options: Mapping[str, float]
    tests: Mapping[int, float]
    mean: float | None
    spread: float | None
    difference: Difference | None
    adjusted: float | None
    verdict: str
    tuned: int
    stopped: int
    diverged: int
    bytes_per_step: float | None
    steps_to_target: float | None
    seconds_to_target: Mapping[str, float | None]
    curve: Sequence[tuple[int, float]]


def target_of(study: Mapping[str, Any], records: Sequence[Record]) -> float | None:
    """The validation metric that counts as reached; None: the baseline has not run."""
    if study["target"] is not None:
        return float(study["target"])
    ends = [
        r["validation"]
        for r in _reported(records, study["methods"][0])
        if r["validation"] is not None
    ]
    if not ends:
        return None
    mean = statistics.fmean(ends)
    better = study["task"]["better"]
    return mean - math.copysign(_SLACK * abs(mean), 1 if better == "higher" else -1)


def rows(study: Mapping[str, Any], records: Sequence[Record]) -> list[Row]:
    """The rows, in the order of the study's methods.

    Args:
      study: what `study.json` holds.
      records: records of its runs.
    """
    better, base = study["task"]["better"], study["methods"][0]
    target = target_of(study, records)
    tests = {m: _tests(_reported(records, m)) for m in study["methods"]}
    found = {m: difference(tests[m], tests[base], better) for m in tests if m != base}
    adjusted = dict(zip(found, holm([d and d.p for d in found.values()]), strict=True))
    return [
        _row(m, study, records, tests[m], found.get(m), adjusted.get(m), target)
        for m in study["methods"]
    ]


def _row(
    method: str,
    study: Mapping[str, Any],
    records: Sequence[Record],
    tests: Mapping[int, float],
    found: Difference | None,
    adjusted: float | None,
    target: float | None,
) -> Row:
    done = _reported(records, method)
    tuned = [r for r in records if r["method"] == method and r["phase"] == "tune"]
    diverged = sum(r["diverged"] for r in done)
    is_base = method == study["methods"][0]
    steps = _steps_to(target, done, study["task"]["better"])
    seconds = study["seconds"][method]
    return Row(
        method=method,
        learning_rate=done[0]["learning_rate"] if done else None,
        options=done[0]["options"] if done else {},
        tests=tests,
        mean=statistics.fmean(tests.values()) if tests else None,
        spread=statistics.stdev(tests.values()) if len(tests) > 1 else None,
        difference=found,
        adjusted=adjusted,
        verdict="baseline" if is_base else verdict(found, adjusted, diverged),
        tuned=len(tuned),
        stopped=sum(r["stopped_at"] is not None for r in tuned),
        diverged=diverged,
        bytes_per_step=done[0]["bytes_per_step"] if done else None,
        steps_to_target=steps,
        seconds_to_target={k: steps and steps * v for k, v in seconds.items()},
        curve=_mean_curve(done),
    )


def unequal_budgets(found: Sequence[Row]) -> str:
    """A sentence where methods were tuned with unequal numbers of runs, or ""."""
    counts = {row.method: row.tuned for row in found if row.tests}
    if len(set(counts.values())) < 2:
        return ""
    each = ", ".join(f"{method} {count}" for method, count in counts.items())
    return f"Methods were not tuned with equally many runs: {each}."


def _reported(records: Sequence[Record], method: str) -> list[Record]:
    chosen = [r for r in records if r["method"] == method and r["phase"] == "report"]
    return sorted(chosen, key=lambda r: r["seed"])


def _tests(done: Sequence[Record]) -> dict[int, float]:
    return {r["seed"]: r["test"] for r in done if r["test"] is not None}


def _steps_to(
    target: float | None, done: Sequence[Record], better: str
) -> float | None:
    """The median; a seed that does not reach the target counts as never."""
    if target is None or not done:
        return None
    steps = statistics.median(_first(r["curve"], target, better) for r in done)
    return steps if math.isfinite(steps) else None


def _first(curve: Sequence[Sequence[Any]], target: float, better: str) -> float:
    goal, best, before = cost(target, better), math.inf, 0
    for step, _, metric in curve:
        now = min(best, cost(metric, better))
        if now <= goal:
            if not math.isfinite(best):
                return float(step)
            return before + (step - before) * (best - goal) / (best - now)
        best, before = now, step
    return math.inf


def _mean_curve(done: Sequence[Record]) -> list[tuple[int, float]]:
    """The validation metric at each point, over the runs that are whole."""
    whole = [r["curve"] for r in done if r["validation"] is not None]
    return [
        (points[0][0], statistics.fmean(p[2] for p in points))
        for points in zip(*whole, strict=True)
    ]
