"""How many random graphs an order leaves within which gap to the optimum."""

from matplotlib.figure import Figure

from scripts.pictures.style import BLUE, GRAY, GREEN, ORANGE, grayed, plot
from scripts.tables.orders import ORDERS
from scripts.tables.rows import DOCS, result

SOURCES = (DOCS / "results" / "orders-quality.json",)
STYLES = {
    "best": (GREEN, "-"),
    "tac": (BLUE, "--"),
    "tic": (ORANGE, "-."),
    "each random": (GRAY, ":"),
}
"""Color and dashes of an order, from the best to the worst."""


def figure() -> Figure:
    """The picture of `orders.md`: a cumulative distribution of each order."""
    found = result("orders-quality")["random_graphs"]["all"]
    figure, axes = plot(3.2)
    for order, (color, dashes) in STYLES.items():
        ends = [*found[order]["quantiles"], found[order]["max"]]
        axes.plot(
            [0.0, *(100 * gap for gap in ends)],
            range(len(ends) + 1),
            dashes,
            color=color,
            linewidth=2.5,
            label=ORDERS[order],
        )
    axes.set(
        xlabel="gap to the optimum, %",
        ylabel="graphs with at most that gap, %",
        xlim=(-1, None),
        ylim=(0, 102),
    )
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    grayed(axes)
    return figure
