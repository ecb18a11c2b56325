"""Figure 1: how far from optimal each order is."""

from collections.abc import Callable
from statistics import mean, median
from typing import Any

from relaxjax import schedule
from relaxjax.bench._report import conditions, plot, save, show
from relaxjax.bench._zoo import CNNS, MODELS
from relaxjax.schedule import Graph

FAMILIES = ("random", "towers", "pairs")
RHOS = (0.5, 1.0, 2.0)


def quality(
    *, graphs: int = 1000, random_orders: int = 20, out: str = "runs/orders"
) -> dict[str, Any]:
    """Gaps of random, TIC, TAC and best orders to the optimum, or to the lower bound.

    Args:
        graphs: how many random graphs in all, of 6 to 18 recvs, against the optimum.
        random_orders: how many random orders each gap of "random" is the mean of.
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
        "large_graphs": _large_graphs(random_orders),
        "models": _models(random_orders),
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


def _large_graphs(random_orders: int) -> dict[str, Any]:
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
        for recvs in (30, 60)
    }


def _models(random_orders: int) -> dict[str, Any]:
    found = {}
    for name, make in MODELS.items():
        model = make()
        graph = Graph.from_function(model.apply, model.params, *model.args)
        for rho in RHOS:
            scaled = at_ratio(graph, rho)
            exact = schedule.series_parallel_order(scaled)
            least = schedule.lower_bound(scaled)
            found[f"{name}, rho {rho}"] = {
                "recvs": len(graph.recvs),
                "ops": len(graph.ops),
                "attributed": graph.attributed,
                "against": "optimum" if exact else "bound",
                **gaps(
                    scaled,
                    schedule.makespan(scaled, exact) if exact else least,
                    random_orders,
                ),
                "best over the bound": schedule.makespan(scaled, schedule.best(scaled))
                / least
                - 1,
            }
    return found


def at_ratio(graph: Graph, rho: float) -> Graph:
    """The graph with its transfers scaled to rho times its computation.

    Args:
        graph: the worker's graph.
        rho: seconds of all recvs and sends over seconds of all operations.
    """
    transfers = graph.communication + sum(t for t, _ in graph.sends.values())
    return graph.scaled(recvs=rho * graph.computation / transfers)


def _targets(result: dict[str, Any]) -> dict[str, Any]:
    everything = result["random_graphs"]["all"]
    cnns = [result["models"][f"{name}, rho {rho}"] for name in CNNS for rho in RHOS]
    worse = [row["best"] > row["tac"] + 1e-12 for row in result["models"].values()]
    return {
        "best: mean gap (<= 0.01)": everything["best"]["mean"],
        "search only: mean gap (<= 0.01)": everything["search only"]["mean"],
        "share of TAC's gap closed by search only (>= 0.6)": 1
        - everything["search only"]["mean"] / everything["tac"]["mean"],
        "share of TAC's gap closed by best (>= 0.6)": 1
        - everything["best"]["mean"] / everything["tac"]["mean"],
        "models where best is worse than TAC (0)": sum(worse),
        "CNN forward, best over the bound (<= 0.001)": max(
            row["best over the bound"] for row in cnns
        ),
    }


def _print(result: dict[str, Any]) -> None:
    rows = [
        (family, order, *(100 * s[k] for k in ("mean", "median", "max", "optimal")))
        for family, orders in result["random_graphs"].items()
        for order, s in orders.items()
    ]
    columns = ("family", "order", "mean %", "median %", "max %", "optimal %")
    show("Gap to the optimum", columns, rows)
    rows = [
        (family, order, 100 * s["mean"], 100 * s["max"])
        for family, orders in result["large_graphs"].items()
        for order, s in orders.items()
    ]
    show("Gap to the lower bound", ("family", "order", "mean %", "max %"), rows)
    orders = ("random", "tic", "tac", "best")
    rows = [
        (
            name,
            row["recvs"],
            row["ops"],
            row["against"],
            *(100 * row[order] for order in orders),
            100 * row["best over the bound"],
        )
        for name, row in result["models"].items()
    ]
    columns = ("model", "recvs", "ops", "against", *(f"{o} %" for o in orders))
    show("Forward graphs", (*columns, "best over the bound %"), rows)
    show("Targets", ("target", "measured"), list(result["targets"].items()))
    print(result["conditions"])
