"""Figure 1: how far from optimal each order is."""

from collections.abc import Callable, Sequence
from statistics import mean, median, quantiles
from typing import Annotated, Any

import typer

from benchmarks.models import CNNS, MODELS
from benchmarks.report import Plot, RandomOrders, Result, Run, Table, benchmark
from relaxjax import schedule
from relaxjax.schedule import Graph

FAMILIES = ("random", "towers", "pairs")
RHOS = (0.5, 1.0, 2.0)
LARGE = (30, 60)
"""Recvs of graphs beyond the optimum's reach, ten of each family."""
ORDERS = ("random", "tic", "tac", "best")


@benchmark("quality", family="orders")
def quality(
    run: Run,
    graphs: Annotated[
        int, typer.Option(min=3, help="Random graphs in all, of 6 to 18 recvs.")
    ] = 1000,
    random_orders: RandomOrders = 20,
) -> Result:
    """Gaps of random, TIC, TAC and best orders to the optimum, or to the lower bound.

    A gap of 0.01 is 1 %; that of "random" is the mean over the random orders, where
    "each random" counts them one by one. "quantiles" are gaps that a hundredth, two
    hundredths and so on do not exceed.
    """
    small = _random_graphs(graphs, random_orders)
    large, models = _large_graphs(random_orders), _models(random_orders)
    lines = {
        order: (list(small), [100 * small[family][order]["mean"] for family in small])
        for order in ORDERS
    }
    targets = _targets(small["all"], models)
    return run.finish(
        {
            "conditions": run.conditions(recvs="6 to 18", seeds="0, 1, ..."),
            "random_graphs": small,
            "large_graphs": large,
            "models": models,
            "targets": targets,
        },
        tables=[
            _summaries("Gap to the optimum", small, ("mean", "median", "max")),
            _summaries("Gap to the lower bound", large, ("mean", "max")),
            _model_table(models),
            Table("Targets", ("target", "measured"), list(targets.items())),
        ],
        plots=[Plot("Gap to the optimum", ("family", "mean gap, %"), lines)],
    )


def gaps(graph: Graph, least: float, at_random: Sequence[float]) -> dict[str, float]:
    """The share by which each order exceeds a makespan.

    Args:
      graph: the worker's graph.
      least: the makespan, in seconds.
      at_random: the shares of random orders, whose mean is taken.
    """
    orders: dict[str, Callable[[Graph], list[str]]] = {
        "tic": schedule.tic,
        "tac": schedule.tac,
        "best": schedule.best,
    }
    return {
        "random": mean(at_random),
        **{
            n: schedule.makespan(graph, f(graph)) / least - 1 for n, f in orders.items()
        },
    }


def _at_random(graph: Graph, least: float, random_orders: int) -> list[float]:
    shuffled = [schedule.random_order(graph, seed=s) for s in range(random_orders)]
    return [schedule.makespan(graph, order) / least - 1 for order in shuffled]


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
    each: list[float] = []
    for seed in range(graphs):
        family = FAMILIES[seed % len(FAMILIES)]
        graph = schedule.random_graph(family, recvs=6 + seed // 3 % 13, seed=seed)
        least = schedule.makespan(graph, schedule.optimum(graph))
        at_random = _at_random(graph, least, random_orders)
        row = gaps(graph, least, at_random)
        # What local search alone does, where `best` would be exact.
        searched = schedule.local_search(graph, [schedule.tac(graph)], evaluations=5000)
        row["search only"] = schedule.makespan(graph, searched) / least - 1
        rows[family].append(row)
        each += at_random
    rows["all"] = [row for family in FAMILIES for row in rows[family]]
    found: dict[str, Any] = {name: _summary(every) for name, every in rows.items()}
    found["all"] |= _summary([{"each random": gap} for gap in each])
    spread = {order: [r[order] for r in rows["all"]] for order in rows["all"][0]}
    for order, every in (spread | {"each random": each}).items():
        found["all"][order]["quantiles"] = quantiles(every, n=100, method="inclusive")
    return found


def _large_graphs(random_orders: int) -> dict[str, Any]:
    """Gaps to the lower bound, which is not tight, beyond the optimum's reach."""
    return {
        f"{family}, {recvs} recvs": _summary(
            [
                gaps(graph, least, _at_random(graph, least, random_orders))
                for graph in (
                    schedule.random_graph(family, recvs=recvs, seed=seed)
                    for seed in range(10)
                )
                for least in [schedule.lower_bound(graph)]
            ]
        )
        for family in ("random", "pairs")
        for recvs in LARGE
    }


def _models(random_orders: int) -> dict[str, Any]:
    rows = {}
    for name, make in MODELS.items():
        model = make()
        graph = Graph.from_function(model.apply, model.params, *model.args)
        for rho in RHOS:
            row = _model_row(at_ratio(graph, rho), random_orders)
            rows[f"{name}, rho {rho}"] = {"attributed": graph.attributed, **row}
    return rows


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
        **gaps(graph, least, _at_random(graph, least, random_orders)),
        "best over the bound": best / bound - 1,
    }


def at_ratio(graph: Graph, rho: float) -> Graph:
    """The worker's graph with its transfers scaled.

    Args:
      graph: the worker's graph.
      rho: seconds of all recvs and sends over seconds of all operations.
    """
    transfers = graph.communication + sum(t for t, _ in graph.sends.values())
    return graph.scaled(recvs=rho * graph.computation / transfers)


def _targets(small: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    gap = {order: summary["mean"] for order, summary in small.items()}
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


def _model_table(rows: dict[str, Any]) -> Table:
    known, orders = ("recvs", "ops", "against"), (*ORDERS, "best over the bound")
    cells = [
        [name, *(row[k] for k in known), *(100 * row[o] for o in orders)]
        for name, row in rows.items()
    ]
    columns = ("model", *known, *(f"{o} %" for o in orders))
    return Table("Forward graphs", columns, cells)


def _summaries(title: str, families: dict[str, Any], keys: tuple[str, ...]) -> Table:
    keys = (*keys, "optimal")
    rows = [
        (family, order, *(100 * summary[key] for key in keys))
        for family, orders in families.items()
        for order, summary in orders.items()
    ]
    return Table(title, ("family", "order", *(f"{key} %" for key in keys)), rows)
