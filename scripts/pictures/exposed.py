"""Milliseconds for which computation waits for messages, by program."""

from matplotlib.figure import Figure

from scripts.pictures.style import BLUE, GRAY, ORANGE, WIDTH, grayed
from scripts.tables.programs import FLAGGED, PLAIN
from scripts.tables.rows import DOCS, result

RUNS = {
    "overlap": ("without flags", BLUE, "o"),
    "overlap-flags": ("with flags", ORANGE, "D"),
}
"""Files of results: their label, color and marker."""
SOURCES = tuple(DOCS / "results" / f"{name}.json" for name in RUNS)
MODELS = {
    "12-layer transformer": "an unrolled transformer",
    "scanned transformer": "a loop over layers",
}
LEAST = 0.01  # milliseconds: a logarithm has no zero


def figure() -> Figure:
    """The picture of `transfers.md`: dots of each program, in both kinds of model."""
    found = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    shown = {name: label.replace("`", "") for name, label in (PLAIN | FLAGGED).items()}
    del shown["pmean, XLA's flags"]  # others than those of the second run
    for axes, (model, title) in zip(found.subplots(2), MODELS.items(), strict=True):
        places = [x for x in shown if any(x in _exposed(run, model) for run in RUNS)]
        axes.set_yticks(range(len(places)), [shown[x] for x in places])
        for run, (label, color, marker) in RUNS.items():
            own = {k: v for k, v in _exposed(run, model).items() if k in places}
            wait = [max(LEAST, 1e3 * seconds) for seconds in own.values()]
            rows = [places.index(name) for name in own]
            axes.plot(wait, rows, marker, color=color, label=label)
        axes.set(xscale="log", xlim=(LEAST / 1.5, 20), title=title)
        axes.set_xticks([0.01, 0.1, 1, 10], ["≤ 0.01", "0.1", "1", "10"])
        axes.set_xlabel("exposed ms")
        axes.invert_yaxis()
        axes.grid(axis="y", color=GRAY, alpha=0.2)
        grayed(axes)
    lines, names = found.axes[0].get_legend_handles_labels()
    where = {"loc": "outside upper right", "ncols": 2, "frameon": False}
    found.legend(lines, names, labelcolor=GRAY, fontsize=9, **where)
    return found


def _exposed(run: str, model: str) -> dict[str, float]:
    """Exposed seconds of a run's programs."""
    return {
        x["program"]: x["exposed"] for x in result(run)["rows"] if x["model"] == model
    }
