"""Seconds to a loss over the rate of the links, relaxjax's best and PyTorch's best."""

from matplotlib.figure import Figure

from scripts.pictures.style import grayed
from scripts.tables.network import SYSTEMS, best, to_the_loss
from scripts.tables.rows import DOCS, result

SOURCES = (DOCS / "results" / "network.json",)


def figure() -> Figure:
    """Bars span the shortest and the longest block."""
    found = result("network")
    by_rate = to_the_loss(found)
    drawn = Figure(figsize=(5.2, 1.8), layout="constrained")
    axes = drawn.subplots()
    for (system, color), mark, up in zip(SYSTEMS.items(), "os", (-24, 8), strict=True):
        points = [best(each, system) for each in by_rate.values()]
        middle = [p.seconds[0] for p in points]
        ends = [[abs(p.seconds[i] - p.seconds[0]) for p in points] for i in (1, 2)]
        axes.errorbar([*by_rate], middle, ends, marker=mark, color=color, capsize=3)
        axes.annotate(
            f"{system}'s best", (min(by_rate), middle[0]), (8, up),
            textcoords="offset points", color=color, fontsize=12,
        )  # fmt: skip
    axes.set(xscale="log", ylim=(0, None), xlabel="Mbit/s of each host's link")
    axes.set_ylabel(f"seconds to loss {found['loss']:g}")
    axes.set_xticks([*by_rate], [f"{rate:g}" for rate in by_rate])
    axes.minorticks_off()
    grayed(axes)
    return drawn
