"""The picture of `islands.md`: goodput over the rate of kills, from what was measured.

Each file of `docs/chaos` is the JSON of one `python -m benchmarks islands chaos`.
"""

import json
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from scripts.pictures.style import BLUE, GRAY, GREEN, ORANGE, PINK, grayed, plot
from scripts.tables.rows import DOCS

SOURCES = (DOCS / "chaos",)

COLORS = {
    "fail-stop": ORANGE,
    "torchft": PINK,
    "islands": BLUE,
    "islands on Ray": GREEN,
}
MARKS = {3: "o", 5: "s"}


class Point(NamedTuple):
    """A part of a run: who trained, processes, kills a minute, and goodput."""

    who: str
    processes: int
    rate: float
    goodput: float


def figure() -> Figure:
    """The picture of `islands.md`."""
    return drawn(points(*SOURCES))


def points(folder: Path) -> list[Point]:
    """What was measured, in the order of rates."""
    found = []
    for path in folder.glob("*.json"):
        run = json.loads(path.read_text())
        said = run["conditions"]
        kills = [x for _, x, *_ in said["schedule"] if x in ("kill", "syncer")]
        rate = len(kills) / said["minutes"]
        for part in ("islands", "fail-stop", "torchft"):
            on_ray = part == "islands" and said["carrier"] == "ray"
            if part in run:
                who = "islands on Ray" if on_ray else part
                found.append(Point(who, said["islands"], rate, run[part]["goodput"]))
    return sorted(found, key=lambda point: (point.rate, point))


def drawn(found: list[Point]) -> Figure:
    """A mark for each run, a color for each way to train."""
    figure, axes = plot(3.4)
    for (who, count), color in (
        ((who, count), color) for who, color in COLORS.items() for count in MARKS
    ):
        mine = [p for p in found if (p.who, p.processes) == (who, count)]
        if mine:
            axes.plot(
                [p.rate for p in mine],
                [p.goodput for p in mine],
                MARKS[count],
                color=color,
                label=f"{who}, {count} processes",
            )
    axes.axhline(0.88, color=GRAY, linewidth=1, linestyle="--")
    axes.annotate("0.88", (1, 0.88), xycoords=("axes fraction", "data"), color=GRAY)
    axes.set(xlabel="kills a minute", ylabel="goodput", ylim=(0, 1), xlim=(0, None))
    axes.legend(loc="lower left", frameon=False, fontsize=9)
    grayed(axes)
    return figure
