"""How much worse characters end, over how many times fewer bytes."""

from matplotlib.figure import Figure

from scripts.pictures.style import BLUE, GRAY, ORANGE, grayed, plot
from scripts.tables.points import STUDIES, Point, cost, front, points

SOURCES = tuple(STUDIES / f"{name}-chars" for name in ("frontier", "recent"))


def figure() -> Figure:
    """The picture of `quality.md`."""
    return drawn(points(*SOURCES))


def drawn(found: list[Point]) -> Figure:
    """How much worse over how many times fewer bytes; the front has names."""
    figure, axes = plot(4.6)
    best = front(found)
    rest = [p for p in found if p.worse is not None and p not in best]
    axes.plot([p.fewer for p in rest], [cost(p) for p in rest], "o", color=BLUE, ms=4)
    axes.plot([p.fewer for p in best], [cost(p) for p in best], "-", color=ORANGE)
    for i, p in enumerate(best, 1):
        axes.plot(p.fewer, cost(p), "o", color=ORANGE, ms=5, label=f"{i}  {p.name}")
        at, side = ((5, -4), "left") if i == len(best) else ((-3, 5), "right")
        axes.annotate(
            f"{i}", (p.fewer, cost(p)), at, textcoords="offset points",
            ha=side, color=ORANGE, fontsize=11,
        )  # fmt: skip
    axes.axhline(0, color=GRAY, linewidth=1)
    axes.set(
        xscale="log", xlabel="times fewer bytes than all-reduce", ylabel="worse, %"
    )
    box = {"loc": "upper left", "bbox_to_anchor": (-0.1, -0.2), "frameon": False}
    axes.legend(**box, handlelength=0, markerscale=0, fontsize=9)
    grayed(axes)
    return figure
