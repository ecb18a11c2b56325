"""Figure 1: how far from optimal each order is."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median
from typing import Any

from benchmarks.models import CNNS, MODELS, Model
from benchmarks.report import conditions, plot, save, show
from relaxjax import schedule
from relaxjax.schedule import Graph

FAMILIES = ("random", "towers", "pairs")
RHOS = (0.5, 1.0, 2.0)


def quality(
    *,
    graphs: int = 1000,
    random_orders: int = 20,
    large: Sequence[int] = (30, 60),
    models: Mapping[str, Callable[[], Model]] = MODELS,
    out: str = "runs/orders",
) -> dict[str, Any]:
    """Gaps of random, TIC, TAC and best orders to the optimum, or to the lower bound.

    Args:
        graphs: how many random graphs in all, of 6 to 18 recvs, against the optimum.
        random_orders: how many random orders each gap of "random" is the mean of.
        large: recvs of the graphs beyond the optimum's reach, ten of each family.
        models: whose forward graphs are ordered.
        out: folder of the JSON and the plot.

    Returns:
        Conditions, gaps (0.01 is 1 %) and the targets.
    """
    result: dict[str, Any] = {
        "conditions": conditions(
            graphs=graphs,
            recvs="6 to 18",
            seeds="0, 1, ...",
            random_orders=random_orders,
        ),
        "random_graphs": _random_graphs(graphs, random_orders),
        "large_graphs": _large_graphs(large, random_orders),
        "models": _models(models, random_orders),
    }
    result["targets"] = _targets(result)
    _print(result)
    path = save(result, out, "quality")
    rows = result["random_graphs"]
    lines = {
        order: (list(rows), [100 * rows[family][order]["mean"] for family in rows])
        for order in ("random", "tic", "tac", "best")
    }
    plot(path, "Gap to the optimum", ("family", "mean gap, %"), lines)
    return result


def gaps(graph: Graph, least: float, random_orders: int) -> dict[str, float]:
    """By which share each order exceeds a makespan.

    Args:
        graph: the worker's graph.
        least: seconds.
        random_orders: how many are averaged.
    """
    orders: dict[str, Callable[[Graph], list[str]]] = {
        "tic": schedule.tic,
        "tac": schedule.tac,
        "best": schedule.best,
    }
    found = {
        n: schedule.makespan(graph, f(graph)) / least - 1 for n, f in orders.items()
    }
    shuffled = [schedule.random_order(graph, seed=s) for s in range(random_orders)]
    at_random = mean(schedule.makespan(graph, order) for order in shuffled)
    return {"random": at_random / least - 1, **found}


def _summary(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    return {
        order: {
            "mean": mean(row[order] for row in rows),
            "median": median(row[order] for row in rows),
            "max": max(row[order] for row in rows),
            "optimal": mean(row[order] <= 1e-12 for row in rows),
        }
        for order in rows[0]
    }


def _random_graphs(graphs: int, random_orders: int) -> dict[str, Any]:
    rows: dict[str, list[dict[str, float]]] = {family: [] for family in FAMILIES}
    for seed in range(graphs):
        family = FAMILIES[seed % len(FAMILIES)]
        graph = schedule.random_graph(family, recvs=6 + seed // 3 % 13, seed=seed)
        least = schedule.makespan(graph, schedule.optimum(graph))
        row = gaps(graph, least, random_orders)
        # What local search alone does, where `best` would be exact.
        searched = schedule.local_search(graph, [schedule.tac(graph)], evaluations=5000)
        row["search only"] = schedule.makespan(graph, searched) / least - 1
        rows[family].append(row)
    rows["all"] = [row for family in FAMILIES for row in rows[family]]
    return {family: _summary(found) for family, found in rows.items()}


def _large_graphs(sizes: Sequence[int], random_orders: int) -> dict[str, Any]:
    """Beyond the optimum's reach: gaps to the lower bound, which is not tight."""
    return {
        f"{family}, {recvs} recvs": _summary(
            [
                gaps(graph, schedule.lower_bound(graph), random_orders)
                for graph in (
                    schedule.random_graph(family, recvs=recvs, seed=seed)
                    for seed in range(10)
                )
            ]
        )
        for family in ("random", "pairs")
        for recvs in sizes
    }


def _models(
    models: Mapping[str, Callable[[], Model]], random_orders: int
) -> dict[str, Any]:
    found = {}
    for name, make in models.items():
        model = make()
        graph = Graph.from_function(model.apply, model.params, *model.args)
        for rho in RHOS:
            row = _model_row(at_ratio(graph, rho), random_orders)
            found[f"{name}, rho {rho}"] = {"attributed": graph.attributed, **row}
    return found


def _model_row(graph: Graph, random_orders: int) -> dict[str, Any]:
    """Gaps to the optimum where that is known, else to the bound."""
    exact = schedule.series_parallel_order(graph)
    bound = schedule.lower_bound(graph)
    least = schedule.makespan(graph, exact) if exact else bound
    best = schedule.makespan(graph, schedule.best(graph))
    return {
        "recvs": len(graph.recvs),
        "ops": len(graph.ops),
        "against": "optimum" if exact else "bound",
        **gaps(graph, least, random_orders),
        "best over the bound": best / bound - 1,
    }


def at_ratio(graph: Graph, rho: float) -> Graph:
    """The graph with its transfers scaled to rho times its computation.

    Args:
        graph: the worker's graph.
        rho: seconds of all recvs and sends over seconds of all operations.
    """
    transfers = graph.communication + sum(t for t, _ in graph.sends.values())
    return graph.scaled(recvs=rho * graph.computation / transfers)


def _targets(result: dict[str, Any]) -> dict[str, Any]:
    gap = {order: s["mean"] for order, s in result["random_graphs"]["all"].items()}
    rows = result["models"]
    cnns = [
        rows[f"{n}, rho {r}"] for n in CNNS for r in RHOS if f"{n}, rho {r}" in rows
    ]
    worse = [row["best"] > row["tac"] + 1e-12 for row in rows.values()]
    closed = {o: 1 - gap[o] / gap["tac"] for o in ("best", "search only")}
    return {
        "best: mean gap (<= 0.01)": gap["best"],
        "search only: mean gap (<= 0.01)": gap["search only"],
        "share of TAC's gap closed by search only (>= 0.6)": closed["search only"],
        "share of TAC's gap closed by best (>= 0.6)": closed["best"],
        "models where best is worse than TAC (0)": sum(worse),
        "CNN forward, best over the bound (<= 0.001)": max(
            (row["best over the bound"] for row in cnns), default=None
        ),
    }


def _print(result: dict[str, Any]) -> None:
    _print_summaries(
        "Gap to the optimum", result["random_graphs"], ("mean", "median", "max")
    )
    _print_summaries("Gap to the lower bound", result["large_graphs"], ("mean", "max"))
    orders = ("random", "tic", "tac", "best", "best over the bound")
    rows = [
        [
            name,
            row["recvs"],
            row["ops"],
            row["against"],
            *(100 * row[o] for o in orders),
        ]
        for name, row in result["models"].items()
    ]
    columns = ("model", "recvs", "ops", "against", *(f"{o} %" for o in orders))
    show("Forward graphs", columns, rows)
    show("Targets", ("target", "measured"), list(result["targets"].items()))
    print(result["conditions"])


def _print_summaries(title: str, found: dict[str, Any], keys: tuple[str, ...]) -> None:
    rows = [
        (family, order, *(100 * summary[key] for key in (*keys, "optimal")))
        for family, orders in found.items()
        for order, summary in orders.items()
    ]
    columns = ("family", "order", *(f"{key} %" for key in (*keys, "optimal")))
    show(title, columns, rows)
