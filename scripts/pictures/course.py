"""Tokens of an islands run and of fail-stop training, over time and under its kills."""

from typing import Any

from matplotlib.figure import Figure

from scripts.pictures.style import BLUE, GRAY, ORANGE, grayed, plot
from scripts.tables.rows import DOCS, result

SOURCES = (DOCS / "results" / "islands-course.json",)
PARTS = {"islands": BLUE, "fail-stop": ORANGE}


def figure() -> Figure:
    """The picture of `islands.md`."""
    return drawn(result("islands-course"))


def drawn(run: dict[str, Any]) -> Figure:
    """A line for each way to train, and a mark for each kill."""
    said = run["conditions"]
    a_second = said["pace"] * said["rows"] * said["islands"]
    whole = 60 * said["minutes"]
    figure, axes = plot(3.2)
    ideal = [0, a_second * whole / 1e3]
    axes.plot([0, whole], ideal, "--", color=GRAY, lw=1, label="no kills")
    for name, color in PARTS.items():
        times, tokens = zip((0, 0), *run[name]["course"], strict=True)
        axes.plot(times, [x / 1e3 for x in tokens], color=color, label=name)
    kills = [x["at"] for x in run["islands"]["faults"]]
    top = 1.08 * a_second * whole / 1e3
    axes.plot(kills, [top] * len(kills), "x", color=GRAY, label="a kill")
    axes.set(xlabel="seconds", ylabel="thousand tokens in the model", ylim=(0, None))
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.9), frameon=False, fontsize=9)
    grayed(axes)
    return figure
