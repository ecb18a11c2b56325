"""A table and a picture for each study in `docs/studies`: quality against bytes.

A folder there holds `study.json` and `results.jsonl`, as `relaxjax.compare` wrote them;
of some the whole report is written again as well, for its figures. Studies of one task
may share a table and a picture, where each relaxation stands beside the baseline of its
own. It is on the front if no other that sends as little ends as well.
"""

from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from relaxjax.compare import Results
from relaxjax.compare.kept._summary import summary
from relaxjax.compare.page import _report
from relaxjax.compare.page._tables import speed

FOLDER = Path(__file__).parents[1] / "studies"
REPORTED = ("two-sites",)
TOGETHER = {
    f"frontier-{task}": (f"frontier-{task}", f"recent-{task}")
    for task in ("chars", "digits")
}
"""Pictures of several studies."""
ON, OFF = "#d55e00", "#0072b2"


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
    """

    name: str
    rate: float | None
    fewer: float
    metric: float | None
    worse: float | None
    low: float | None = None
    high: float | None = None


def points(*folders: Path) -> list[Point]:
    """All relaxations of some studies, those that send most first."""
    made = {p.name: p for folder in folders[::-1] for p in _points(folder)}
    return sorted(made.values(), key=lambda point: point.fewer)


def _points(folder: Path) -> list[Point]:
    """A study's, the baseline first."""
    results = Results(folder)
    found = summary(results.study, results.records())
    sign = -1.0 if found.better == "higher" else 1.0
    base = found.rows[0].mean
    assert base
    made = [Point(found.rows[0].method, _rate(found.rows[0]), 1.0, base, None)]
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
        made.append(
            Point(name, _rate(row), row.fewer_bytes or 1.0, metric, worse, *ends)
        )
    return made


def _rate(row: object) -> float | None:
    setting = getattr(row, "setting", None)
    return setting and setting.learning_rate


def front(found: list[Point]) -> list[Point]:
    """Those that no other beats, from most bytes to fewest."""
    kept: list[Point] = []
    for point in sorted(found, key=lambda p: (-p.fewer, _cost(p))):
        if point.worse is not None and all(_cost(point) < _cost(k) for k in kept):
            kept.append(point)
    return kept[::-1]


def _cost(point: Point) -> float:
    return float("inf") if point.worse is None else point.worse


def table(*folders: Path) -> list[str]:
    """Lines of Markdown; relaxations on the front are bold."""
    found = points(*folders)
    best = front(found)
    metric = Results(folders[0]).study["task"]["metric_name"].replace("_", " ")
    lines = [
        f"| relaxation | rate | bytes | {metric} | worse, % |",
        "|---|---|---|---|---|",
    ]
    for p in found:
        name = f"**`{p.name}`**" if p in best else f"`{p.name}`"
        worse = "" if p.worse is None else f"{p.worse + 0.0:.1f}"
        if p.low is not None and p.high is not None:
            worse += f" [{p.low:.1f}, {p.high:.1f}]"
        value = "diverged" if p.metric is None else f"{p.metric:.4g}"
        rate = "" if p.rate is None else f"{p.rate:.2g}"
        lines.append(f"| {name} | {rate} | 1/{p.fewer:.3g} | {value} | {worse} |")
    return lines


def to_target(folder: Path) -> list[str]:
    """Lines of Markdown: steps to a study's target, and seconds on each network."""
    results = Results(folder)
    found = summary(results.study, results.records())
    columns = [x for x in speed(found) if x.title != "bytes to target"]
    heads = ["relaxation", *(column.title for column in columns[1:])]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in found.rows:
        name, *cells = (column.cell(row) for column in columns)
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


def drawn(found: list[Point]) -> Figure:
    """How much worse over how many times fewer bytes; the front has names."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    best = front(found)
    rest = [p for p in found if p.worse is not None and p not in best]
    axes.plot([p.fewer for p in rest], [_cost(p) for p in rest], "o", color=OFF, ms=5)
    axes.plot([p.fewer for p in best], [_cost(p) for p in best], "o-", color=ON, ms=6)
    for i, p in enumerate(best):
        below = i % 2 == 0
        axes.annotate(
            p.name.replace(" ", "\n", 1),
            (p.fewer, _cost(p)),
            xytext=(5, -6) if below else (-5, 6),
            textcoords="offset points",
            ha="left" if below else "right",
            va="top" if below else "bottom",
            fontsize=7,
            color=ON,
        )
    axes.axhline(0, color="0.6", linewidth=1)
    axes.margins(x=0.2, y=0.2)
    axes.set(
        xscale="log", xlabel="times fewer bytes than all-reduce", ylabel="worse, %"
    )
    axes.spines[["top", "right"]].set_visible(False)
    return figure


class StudyTable(SphinxDirective):
    """The table of the studies that are named, as a directive."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Parses it."""
        lines = table(*(FOLDER / name for name in self.arguments[0].split()))
        return self.parse_text_to_nodes("\n".join(lines))


class StudySeconds(SphinxDirective):
    """The way of a study to its target, as a directive."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parses it."""
        return self.parse_text_to_nodes(
            "\n".join(to_target(FOLDER / self.arguments[0]))
        )


def write(app: Sphinx) -> None:
    """Draws all studies into a folder that is not part of the sources."""
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    for study in sorted((Path(app.srcdir) / "studies").iterdir()):
        alike = TOGETHER.get(study.name, (study.name,))
        found = points(*(study.parent / name for name in alike))
        drawn(found).savefig(folder / f"{study.name}.png", dpi=150)
        if study.name in REPORTED:
            results = Results(study)
            _report.write(folder / study.name, results.study, results.records())


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers both."""
    app.add_directive("study-table", StudyTable)
    app.add_directive("study-seconds", StudySeconds)
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
