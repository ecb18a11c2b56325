"""Quality over bytes, steps to a target, and the best, of studies in `docs/studies`."""

from pathlib import Path

from relaxjax.compare import Results
from relaxjax.compare.kept._summary import summary
from relaxjax.compare.page._tables import speed
from scripts.tables.points import STUDIES, Point, front, of_study, points
from scripts.tables.rows import heads, row

LEAST = {8: 1, 32: 1, 100: 1, 400: 2}
"""Times fewer bytes, and how much worse that may be, in %."""
MEAN = "diloco sync_every=15"
RDA = "decoupled_diloco sync_every=15 fragments=1 overlap=0"
MERGES = {
    "mean, outer rate 1": f"{MEAN} outer_learning_rate=1",
    "mean, 0.5": f"{MEAN} outer_learning_rate=0.5",
    "`rda`, 1": f"{RDA} outer_learning_rate=1",
    "`rda`, 0.5": f"{RDA} outer_learning_rate=0.5",
}

LOW_RANK = {
    "power_sgd rank=8": "PowerSGD of rank 8",
    "acp_sgd rank=8": "ACP-SGD of rank 8",
    "demo k=8": "DeMo, 8 coefficients of a block",
    "dion fraction=0.125 bits=8": "Dion of rank 1/8",
    "dion2 fraction=0.0625 bits=8": "Dion2 with 1/16 of the rows",
    "arc_top_k density=0.02": "ARC-Top-K with 2 % of the rows",
}
"""Methods of `gradients.md`."""


def of(*names: str) -> list[str]:
    """The table of the studies that are named."""
    return table(*(STUDIES / name for name in names))


def seconds(name: str) -> list[str]:
    """The way of a study to its target."""
    return to_target(STUDIES / name)


def table(*folders: Path) -> list[str]:
    """Lines of Markdown; relaxations on the front are bold."""
    found = points(*folders)
    best = front(found)
    metric = Results(folders[0]).study["task"]["metric_name"].replace("_", " ")
    lines = heads("relaxation", ["rate", "bytes", metric, "worse, %"])
    for p in found:
        name = f"**`{p.name}`**" if p in best else f"`{p.name}`"
        worse = "" if p.worse is None else f"{p.worse + 0.0:.1f}"
        if p.low is not None and p.high is not None:
            worse += f" [{p.low:.1f}, {p.high:.1f}]"
        value = "diverged" if p.metric is None else f"{p.metric:.4g}"
        rate = "" if p.rate is None else f"{p.rate:.2g}"
        lines.append(row(name, [rate, f"1/{p.fewer:.3g}", value, worse]))
    return lines


def to_target(folder: Path) -> list[str]:
    """Lines of Markdown: steps to a study's target, and seconds on each network."""
    results = Results(folder)
    found = summary(results.study, results.records())
    columns = [x for x in speed(found) if x.title != "bytes to target"]
    lines = heads("relaxation", [column.title for column in columns[1:]])
    for each in found.rows:
        name, *cells = (column.cell(each) for column in columns)
        lines.append(row(f"`{name}`", cells))
    return lines


def frontier() -> list[str]:
    """How much worse the best is that sends so little, on characters."""
    found = points(STUDIES / "frontier-chars", STUDIES / "recent-chars")
    lines = heads("bytes", ["worse, %", "target, %"])
    for fewer, target in LEAST.items():
        lost = [p.worse for p in found if p.worse is not None and p.fewer >= fewer]
        lines.append(row(f"1/{fewer}", [f"{min(lost):.1f}", str(target)]))
    return lines


def low_rank() -> list[str]:
    """How much worse the methods of `gradients.md` are, and their bytes."""
    chars, digits = (
        {
            p.method: p
            for p in points(STUDIES / f"frontier-{x}", STUDIES / f"recent-{x}")
        }
        for x in ("chars", "digits")
    )
    lines = heads("method", ["bytes", "characters, %", "digits, %"])
    for method, name in LOW_RANK.items():
        lost = [found[method].worse for found in (chars, digits)]
        shown = ["diverged" if x is None else f"{x:.1f}" for x in lost]
        lines.append(row(name, [f"1/{chars[method].fewer:.3g}", *shown]))
    return lines


def merges() -> list[str]:
    """Bits per character by merge and outer rate; the best of each row is bold."""
    lines = heads("workers", MERGES)
    for workers in (8, 64):
        measured = {
            p.method: p for p in of_study(STUDIES / f"merges-{workers}-workers")
        }
        found = [measured[f"{x} outer_momentum=0.3"] for x in MERGES.values()]
        best = min(p.metric for p in found if p.metric is not None)
        cells = [f"**{_cell(p)}**" if p.metric == best else _cell(p) for p in found]
        lines.append(row(str(workers), cells))
    return lines


def _cell(point: Point) -> str:
    text = f"{point.metric:.3f}"
    if point.worse is not None:
        text += f" ({point.worse:+.1f} [{point.low:.1f}, {point.high:.1f}])"
    return text
