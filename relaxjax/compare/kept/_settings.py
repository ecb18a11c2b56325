"""Settings: the one chosen on validation data, and the runs that report it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from relaxjax.compare.kept._statistics import cost

Record = Mapping[str, Any]
"""One run, which is one line of `results.jsonl`."""


class Setting(NamedTuple):
    """What is tuned for a method.

    Attributes:
      learning_rate: the peak rate of the optimizer.
      options: names and values of the method's own options, sorted by name.
    """

    learning_rate: float
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        """A short text, such as `0.003, sync_every=16`."""
        words = [f"{name}={_short(value)}" for name, value in self.options]
        return ", ".join([_short(self.learning_rate), *words])


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def setting_of(record: Record) -> Setting:
    """The setting of a run.

    Example:
      >>> from relaxjax.compare.kept._settings import setting_of
      >>> str(setting_of({"learning_rate": 0.003, "options": {"sync_every": 16.0}}))
      '0.003, sync_every=16'
    """
    options = tuple(sorted(dict(record.get("options") or {}).items()))
    return Setting(record["learning_rate"], options)


def middle_of(equals: Iterable[Setting]) -> Setting:
    """The middle rate of settings that are as good, and the smaller of two."""
    ordered = sorted(equals, key=lambda x: (x.learning_rate, repr(x.options)))
    return ordered[(len(ordered) - 1) // 2]


class StudyRuns(NamedTuple):
    """The runs of a study.

    Attributes:
      study: what is in `study.json`.
      records: all runs.
    """

    study: Record
    records: Sequence[Record]

    def of(self, method: str, phase: str) -> list[Record]:
        """A method's in a phase, at the study's own steps, workers and batch size."""
        size = ("steps", "workers", "batch_size")
        study = self.study
        own = {name: study[name] for name in size if study.get(name) is not None}
        return [
            record
            for record in self.records
            if record["method"] == method
            and record["phase"] == phase
            and all(record.get(name, value) == value for name, value in own.items())
        ]

    def tuned(self, method: str) -> dict[Setting, list[Record]]:
        """Tuning runs of a method by setting; a repeated seed counts once, the last."""
        runs: dict[Setting, dict[int, Record]] = defaultdict(dict)
        for record in self.of(method, "tune"):
            runs[setting_of(record)][record["seed"]] = record
        return {setting: list(by_seed.values()) for setting, by_seed in runs.items()}

    def count_tuned(self, method: str) -> int:
        """How many tuning runs a method has."""
        return sum(map(len, self.tuned(method).values()))

    def chosen(self, method: str) -> Setting | None:
        """The setting with the best validation metric in phase "tune".

        The mean over the tuning seeds counts. Settings with a diverged run are out;
        runs that were stopped early lose to runs that were not. Among equals the middle
        rate wins, the smaller of two. Without tuning, it is the setting of the last
        report run.

        Args:
          method: label of the method.

        Returns:
          The setting; None if there are no runs, or if every setting diverged.
        """
        settings, better = self.tuned(method), self.study["task"]["better"]

        def merit(item: tuple[Setting, list[Record]]) -> tuple[Any, ...]:
            _, runs = item
            finished = all(run.get("stopped_at") is None for run in runs)
            mean = sum(run["validation"] for run in runs) / len(runs)
            return not finished, -len(runs), cost(mean, better)

        whole = {
            setting: runs
            for setting, runs in settings.items()
            if not any(diverged(run, "validation") for run in runs)
        }
        if whole:
            best = min(map(merit, whole.items()))
            return middle_of(item[0] for item in whole.items() if merit(item) == best)
        last = [] if settings else self.of(method, "report")
        return setting_of(last[-1]) if last else None

    def reported(self, method: str) -> dict[int, Record]:
        """Report runs by seed, at the chosen setting; of a repeated seed, the last one.

        Without any, those at the setting of the last report run count, and the
        report says so.
        """
        setting = self.chosen(method)
        seeds = set(self.study["seeds"])
        runs = [run for run in self.of(method, "report") if run["seed"] in seeds]
        if runs and not any(setting_of(run) == setting for run in runs):
            setting = setting_of(runs[-1])
        return {run["seed"]: run for run in runs if setting_of(run) == setting}


def diverged(record: Record, name: str) -> bool:
    """Whether a run has no finite metric: `name` is "validation" or "test"."""
    return bool(record.get("diverged")) or record.get(name) is None
