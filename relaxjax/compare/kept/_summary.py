"""What a study says: chosen settings, the rows of the table, and the way to a target.

Everything is computed from `study.json` and the lines of `results.jsonl`, as plain
data; nothing is run or measured here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxjax.compare.kept._curves import Curve, curve, median_to_target, target_of
from relaxjax.compare.kept._fairness import remarks
from relaxjax.compare.kept._settings import Record, Setting, StudyRuns, diverged
from relaxjax.compare.kept._verdicts import LEAST_PAIRS, NONE, WORSE, Verdict, verdicts


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method of a study, at its chosen setting, over the report seeds.

    Attributes:
      method: its label.
      setting: learning rate and options; None if there are no runs to choose from.
      tuning_runs: number of runs that the choice is made of.
      test: the test metric by report seed; None where the run diverged.
      mean: mean of the finite ones; None without one.
      spread: their standard deviation; None with fewer than two.
      verdict: against the baseline; None for the baseline itself.
      bytes_per_step: bytes sent by the busiest device, averaged over a period.
      fewer_bytes: the baseline's bytes over the method's; None where it sends none.
      curve: validation metric over the steps.
      steps_to_target: median over the seeds; None: not reached.
      reached: number of seeds that reach the target.
      bytes_to_target: `steps_to_target` times `bytes_per_step`.
      seconds: predicted seconds of a step, by network.
      seconds_to_target: `steps_to_target` times them.
    """

    method: str
    setting: Setting | None
    tuning_runs: int
    test: Mapping[int, float | None]
    mean: float | None
    spread: float | None
    verdict: Verdict | None
    bytes_per_step: float | None
    fewer_bytes: float | None
    curve: Curve
    steps_to_target: float | None
    reached: int
    bytes_to_target: float | None
    seconds: Mapping[str, float]
    seconds_to_target: Mapping[str, float | None]

    @property
    def stands(self) -> bool:
        """Whether a run ended with a finite metric, so that it may come first."""
        return self.mean is not None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A study in numbers.

    Attributes:
      study: what is in `study.json`.
      baseline: label of the method that the others are compared with.
      better: "higher" or "lower".
      target: the validation metric that counts as reached; None: no target.
      rows: one a method, in the study's order; the baseline is the first.
      remarks: sentences on what is not fair or not finished; empty is good.
    """

    study: Record
    baseline: str
    better: str
    target: float | None
    rows: Sequence[Row]
    remarks: Sequence[str]

    @property
    def metric_name(self) -> str:
        """The task's metric, in words."""
        return self.study["task"]["metric_name"].replace("_", " ")


def summary(study: Record, records: Sequence[Record]) -> Summary:
    """Puts a study together from its records.

    Args:
      study: what is in `study.json`; the first of its methods is the baseline.
      records: lines of `results.jsonl`, of all shards, in any order but for repeats,
        the last of which counts.

    Returns:
      One row for each method of the study, those without runs among them.
    """
    methods = list(study["methods"])
    baseline, better = methods[0], study["task"]["better"]
    found = StudyRuns(study, records)
    runs = {name: found.reported(name) for name in methods}
    target = target_of(study, list(runs[baseline].values()))
    tests = {
        name: {
            seed: None if diverged(run, "test") else float(run["test"])
            for seed, run in sorted(by_seed.items())
        }
        for name, by_seed in runs.items()
    }
    words = verdicts(tests, baseline, better=better)
    base_bytes = _bytes_per_step(runs[baseline])
    rows = [
        _row(found, name, tests[name], words.get(name), base_bytes, target)
        for name in methods
    ]
    return Summary(
        study=study,
        baseline=baseline,
        better=better,
        target=target,
        rows=rows,
        remarks=remarks(study, records),
    )


def _row(
    found: StudyRuns,
    method: str,
    test: Mapping[int, float | None],
    verdict: Verdict | None,
    base_bytes: float | None,
    target: float | None,
) -> Row:
    """One method; `verdict` is None for the baseline."""
    study, runs = found.study, found.reported(method)
    setting, tuning = found.chosen(method), found.count_tuned(method)
    if verdict and setting is None and tuning:
        verdict = _hopeless(study, tuning, verdict)
    finite = [value for value in test.values() if value is not None]
    size = _bytes_per_step(runs)
    steps, reached = median_to_target(
        list(runs.values()), target, study["task"]["better"]
    )
    seconds = study.get("seconds", {}).get(method) or {}
    return Row(
        method=method,
        setting=setting,
        tuning_runs=tuning,
        test=test,
        mean=float(np.mean(finite)) if finite else None,
        spread=float(np.std(finite, ddof=1)) if len(finite) > 1 else None,
        verdict=verdict,
        bytes_per_step=size,
        fewer_bytes=base_bytes / size if base_bytes and size else None,
        curve=curve(list(runs.values())),
        steps_to_target=steps,
        reached=reached,
        bytes_to_target=_times(steps, size),
        seconds=seconds,
        seconds_to_target={name: _times(steps, s) for name, s in seconds.items()},
    )


def _hopeless(study: Record, tuning: int, verdict: Verdict) -> Verdict:
    """The verdict on a method whose every setting diverged while tuning."""
    word = WORSE if len(study["seeds"]) >= LEAST_PAIRS else NONE
    return verdict._replace(
        word=word, because=f"every setting diverged in {tuning} tuning runs"
    )


def _bytes_per_step(runs: Mapping[int, Record]) -> float | None:
    each = (run.get("bytes_per_step") for run in runs.values())
    known = [size for size in each if size is not None]
    return float(np.mean(known)) if known else None


def _times(steps: float | None, each: Any) -> float | None:
    return None if steps is None or each is None else float(steps * each)
