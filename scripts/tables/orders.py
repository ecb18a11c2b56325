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


CLUSTERS = {
    **{f"{n} x 1": (n, 1, "whole") for n in (1, 2, 4, 8, 16)},
    "8 x 4": (8, 4, "whole"),
    "8 x 4 sliced": (8, 4, "sliced"),
}


def gains() -> list[str]:
    """TAC's gain over the mean random order in %, where both times are equal."""
    rows = [each for each in result("orders-throughput")["rows"] if each["rho"] == 1]
    lines = heads("model", ["graph", *CLUSTERS])
    for model, graph in dict.fromkeys((x["model"], x["graph"]) for x in rows):
        gain = {
            (x["workers"], x["servers"], x["condition"]): 100 * (x["tac"] - 1)
            for x in rows
            if (x["model"], x["graph"]) == (model, graph)
        }
        cells = [f"{gain[cluster]:+.1f}" for cluster in CLUSTERS.values()]
        lines.append(row(model, [graph, *cells]))
    return lines


def stragglers() -> list[str]:
    """The straggler effect by kind of cluster, and how often it fell enough."""
    lines = heads(
        "servers",
        ["clusters", "target met", "without an order", "TAC", "one fixed random order"],
    )
    for name, each in result("orders-throughput")["stragglers"].items():
        shares = (f"{each[key]:.4f}" for key in ("without", "tac", "fixed"))
        lines.append(row(name, [f"{each['clusters']}", f"{each['fell']}", *shares]))
    return lines


def policies() -> list[str]:
    """Seconds a step by the policies of other systems."""
    lines = heads("over", ["policy", "s/step", "exposed s/step", "messages"])
    for each in result("orders-throughput")["neighbors"]:
        seconds = (f"{each[key]:.4f}" for key in ("seconds", "exposed"))
        lines.append(
            row(each["over"], [each["policy"], *seconds, f"{each['buckets']}"])
        )
    return lines


SHAPES = {"layered": "chain of layers", "tangled": "tangled"}
PASSES = {"forward": "forward", "train": "training"}


def speed() -> list[str]:
    """Seconds of both orders for the largest graphs, and of tracing a model."""
    found = result("orders-speed")
    layers = found["conditions"]["layers"]
    lines = heads("graph", ["operations", "recvs", "s"])
    rows = [each for each in found["rows"] if each["shape"] in SHAPES]
    largest = max(each["ops"] for each in rows)
    for each in rows:
        if each["ops"] == largest:
            first = f"{SHAPES[each['shape']]}, {each['order'].upper()}"
            sizes = [f"{each['ops']}", f"{each['recvs']}"]
            lines.append(row(first, [*sizes, f"{each['median']:.3g}"]))
    for name, shown in PASSES.items():
        each = found["from_function"][name]
        first = f"tracing a {layers}-layer transformer, {shown}"
        lines.append(row(first, [f"{each['ops']}", "", f"{each['median']:.3g}"]))
    return lines
