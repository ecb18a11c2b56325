"""How many random graphs an order leaves within which gap to the optimum."""

from matplotlib.figure import Figure

from scripts.tables.orders import ORDERS
from scripts.tables.rows import DOCS, result

SOURCES = (DOCS / "results" / "orders-quality.json",)
STYLES = {
    "best": ("#009e73", "-"),
    "tac": ("#0072b2", "--"),
    "tic": ("#d55e00", "-."),
    "each random": ("0.35", ":"),
}
"""Color and dashes of an order, from the best to the worst."""


def figure() -> Figure:
    """The picture of `orders.md`: a cumulative distribution of each order."""
    found = result("orders-quality")["random_graphs"]["all"]
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
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
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    return figure
