"""Relaxations of studies in `docs/studies`: bytes saved, and quality lost."""

from pathlib import Path
from typing import NamedTuple

from relaxjax.compare import Results
from relaxjax.compare.kept._summary import summary
from scripts.tables.rows import DOCS

STUDIES = DOCS / "studies"


class Point(NamedTuple):
    """A relaxation of a study.

    Attributes:
      name: its label, without options of the outer optimizer.
      rate: the learning rate that was chosen; None if all diverged.
      fewer: the baseline's bytes over its own.
      metric: the mean test metric; None if it diverged.
      worse: how much worse than the baseline, in percent of it.
      low: lower end of the 95 % interval of `worse`, in percent; None: one seed.
      high: the upper end.
      method: its whole label.
    """

    name: str
    rate: float | None
    fewer: float
    metric: float | None
    worse: float | None
    low: float | None = None
    high: float | None = None
    method: str = ""


def points(*folders: Path) -> list[Point]:
    """All relaxations of some studies, those that send most first."""
    made = {p.name: p for folder in folders[::-1] for p in of_study(folder)}
    return sorted(made.values(), key=lambda point: point.fewer)


def of_study(folder: Path) -> list[Point]:
    """A study's, the baseline first."""
    results = Results(folder)
    found = summary(results.study, results.records())
    sign = -1.0 if found.better == "higher" else 1.0
    base = found.rows[0].mean
    assert base
    first = found.rows[0]
    made = [Point(first.method, _rate(first), 1.0, base, None, method=first.method)]
    for row in found.rows[1:]:
        if not row.tuning_runs and not row.test:
            continue  # not begun
        words = row.method.split()
        name = " ".join(word for word in words if not word.startswith("outer_"))
        said, ends = row.verdict and row.verdict.difference, ()
        if said and said.low is not None and said.high is not None:
            ends = sorted(100 * sign * x / base for x in (said.low, said.high))
        lost = row.mean is None or not said or None in row.test.values()
        worse = None if lost or not said else 100 * sign * said.mean / base
        metric = None if lost else row.mean
        low, high = ends or (None, None)
        fewer = row.fewer_bytes or 1.0
        made.append(
            Point(name, _rate(row), fewer, metric, worse, low, high, row.method)
        )
    return made


def _rate(row: object) -> float | None:
    setting = getattr(row, "setting", None)
    return setting and setting.learning_rate


def front(found: list[Point]) -> list[Point]:
    """Those that no other beats, from most bytes to fewest."""
    kept: list[Point] = []
    for point in sorted(found, key=lambda p: (-p.fewer, cost(p))):
        if point.worse is not None and all(cost(point) < cost(k) for k in kept):
            kept.append(point)
    return kept[::-1]


def cost(point: Point) -> float:
    """How much worse it is; infinite if it diverged."""
    return float("inf") if point.worse is None else point.worse
