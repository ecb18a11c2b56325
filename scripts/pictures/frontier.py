"""How much worse characters end, over how many times fewer bytes."""

from matplotlib.figure import Figure

from scripts.tables.points import STUDIES, Point, cost, front, points

ON, OFF = "#d55e00", "#0072b2"
SOURCES = tuple(STUDIES / f"{name}-chars" for name in ("frontier", "recent"))


def figure() -> Figure:
    """The picture of `quality.md`."""
    return drawn(points(*SOURCES))


def drawn(found: list[Point]) -> Figure:
    """How much worse over how many times fewer bytes; the front has names."""
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    best = front(found)
    rest = [p for p in found if p.worse is not None and p not in best]
    axes.plot([p.fewer for p in rest], [cost(p) for p in rest], "o", color=OFF, ms=5)
    axes.plot([p.fewer for p in best], [cost(p) for p in best], "o-", color=ON, ms=6)
    for i, p in enumerate(best):
        below = i % 2 == 0
        axes.annotate(
            p.name.replace(" ", "\n", 1),
            (p.fewer, cost(p)),
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
