"""What a first step and a process cost, beside a step by hand and PyTorch."""

from statistics import median

from matplotlib.figure import Figure

from scripts.pictures.style import BLUE, GREEN, ORANGE, WIDTH, grayed
from scripts.tables.memory import NAMES as PROCESSES
from scripts.tables.rows import DOCS, result
from scripts.tables.speed import NAMES as STEPS

SOURCES = tuple(DOCS / "results" / f"{x}.json" for x in ("first-step", "memory"))
COLORS = {"by hand": GREEN, "DDP": ORANGE}


def figure() -> Figure:
    """The picture of `speed.md`: bars of relaxjax, and of what it is compared with."""
    found = Figure(figsize=(WIDTH, 5.2), layout="constrained")
    above, below = found.subplots(2)
    seconds = result("first-step")["seconds"]["mesh"]
    rows = {row["method"]: row["peak"] for row in result("memory")["rows"]}
    first = {STEPS[name]: median(seconds[name]) for name in STEPS}
    resident = {shown: rows[name] / 2**20 for name, shown in PROCESSES.items()}
    parts = [(above, first, "processor seconds of a first step")]
    parts += [(below, resident, "MiB of a process, at most")]
    for axes, bars, label in parts:
        names = [name.replace("`", "") for name in bars]
        axes.barh(
            names[::-1], [*bars.values()][::-1], color=[*map(_color, names[::-1])]
        )
        axes.set_xlabel(label)
        grayed(axes)
    return found


def _color(name: str) -> str:
    beside = (color for start, color in COLORS.items() if name.startswith(start))
    return next(beside, BLUE)
