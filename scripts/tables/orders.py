"""Orders of pulls: how far random graphs and models are from the optimum."""

from scripts.tables.rows import heads, result, row

ORDERS = {"each random": "random", "tic": "TIC", "tac": "TAC", "best": "best"}
"""Keys of the file, and what pages call them; of each graph many random orders."""
MODELS = ("vgg16", "resnet50", "inception", "transformer", "two_tower", "experts")


def gaps() -> list[str]:
    """Gaps to the optimum over all random graphs, in percent."""
    found = result("orders-quality")["random_graphs"]["all"]
    shown = {"mean": "mean", "max": "largest", "optimal": "share of optimal orders, %"}
    lines = heads("gap to the optimum, %", ORDERS.values())
    for key, label in shown.items():
        places = 2 if key == "mean" else 0
        cells = [f"{100 * found[order][key]:.{places}f}" for order in ORDERS]
        lines.append(row(label, cells))
    return lines


def models() -> list[str]:
    """Gaps of models with as much communication as computation, in percent."""
    found = result("orders-quality")["models"]
    lines = heads("model", ORDERS.values())
    for model in MODELS:
        one = found[f"{model}, rho 1.0"]
        shown = [one[x] for x in ("random", "tic", "tac", "best")]
        lines.append(row(model, [f"{round(100 * x, 2) + 0:.2f}" for x in shown]))
    return lines
