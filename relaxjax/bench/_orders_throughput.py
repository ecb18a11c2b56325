"""Figure 3: what an order is worth in simulated training with parameter servers."""

from collections.abc import Iterable
from statistics import mean, pstdev
from typing import Any

from relaxjax import schedule
from relaxjax.bench._orders_quality import at_ratio
from relaxjax.bench._report import conditions, plot, save, show
from relaxjax.bench._zoo import CNNS, MODELS
from relaxjax.schedule import Cluster, Cost, Graph, Link, Policy, Stragglers, Timeline

RHOS = (0.5, 1.0, 2.0)
CLUSTERS = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (16, 1), (16, 4))
"""Workers and servers."""
NOISE = Stragglers(jitter=0.01)
LINK = Link(latency=0.0, bandwidth=1.25e9)


def throughput(*, orders: int = 100, out: str = "runs/orders") -> dict[str, Any]:
    """Gain over the mean of random orders, stragglers, and the neighbors' policies.

    Args:
        orders: at least so many random orders are behind each mean: every worker has
            one of its own in every step.
        out: folder of the JSON and the plot.

    Returns:
        Conditions and one row for each model, rho and cluster.
    """
    graphs = {(name, kind): make(name) for name in CNNS for kind, make in KINDS.items()}
    rows: list[dict[str, Any]] = [
        {"model": name, "graph": kind}
        | _compare(at_ratio(graph, rho), rho, workers, servers, orders)
        for (name, kind), graph in graphs.items()
        for rho in RHOS
        for workers, servers in CLUSTERS
    ]
    result = {
        "conditions": conditions(
            random_orders=orders,
            seed=0,
            rho="seconds of all pulls and pushes on one link over computation",
            links="the same rate for workers and servers, one link each way",
            jitter="log-normal, sigma 0.01, for each worker and step",
            graphs="condensed; training: forward, backward, a push per parameter",
        ),
        "rows": rows,
        "neighbors": _neighbors(graphs["resnet50", "training"]),
    }
    _print(result)
    lines: dict[str, tuple[list[int], list[float]]] = {}
    for kind in KINDS:
        for rho in RHOS:
            own = [
                row
                for row in rows
                if row["model"] == "resnet50"
                and (row["graph"], row["rho"], row["servers"]) == (kind, rho, 1)
            ]
            gains = [100 * (row["tac"] - 1) for row in own]
            lines[f"{kind}, rho {rho}"] = ([row["workers"] for row in own], gains)
    plot(
        save(result, out, "throughput"),
        "ResNet-50, one server: TAC over the mean random order",
        ("workers", "gain in throughput, %"),
        lines,
    )
    return result


def _training_graph(name: str) -> Graph:
    model = MODELS[name]()
    graph = Graph.from_loss(model.loss, model.params, *model.args, link=LINK)
    return schedule.condensed(graph)


def _inference_graph(name: str) -> Graph:
    model = MODELS[name]()
    graph = Graph.from_function(model.apply, model.params, *model.args, link=LINK)
    return schedule.condensed(graph)


KINDS = {"inference": _inference_graph, "training": _training_graph}


def _compare(
    graph: Graph, rho: float, workers: int, servers: int, orders: int
) -> dict[str, Any]:
    """Throughput of each order over that of random orders, on one cluster."""
    nbytes = sum(graph.nbytes.values())
    link = Link(latency=0.0, bandwidth=nbytes / graph.communication)
    cluster = Cluster(workers, servers, link, stragglers=NOISE)
    steps = max(12, orders // workers)
    loose = schedule.simulate(graph, schedule.unordered(), cluster, steps=steps)
    times = [max(step) for step in loose.step_times()]
    row: dict[str, Any] = {
        "rho": rho,
        "workers": workers,
        "servers": servers,
        "seconds": mean(times),
        "spread": pstdev(times) / mean(times),
        "distinct": _distinct(loose) / (steps * workers),
        "straggler": loose.straggler_effect(),
    }
    candidates = {
        "tic": schedule.tic(graph),
        "tac": schedule.tac(graph),
        "fixed": schedule.random_order(graph, seed=1),
    }
    for label, order in candidates.items():
        policy = schedule.ordered(label, order)
        tight = schedule.simulate(graph, policy, cluster, steps=4)
        row[label] = row["seconds"] / mean(max(t) for t in tight.step_times())
        row[f"straggler {label}"] = tight.straggler_effect()
    return row


def _distinct(run: Timeline) -> int:
    """How many different orders the workers saw over all steps."""
    orders: dict[tuple[int, int], list[str]] = {}
    for span in run.spans:
        if span.track.startswith("worker") and span.track.endswith(" in"):
            orders.setdefault((span.worker, span.step), []).append(span.name)
    return len({tuple(order) for order in orders.values()})


def ring(workers: int, nbytes: int) -> Cost:
    """What one worker does in a ring all-reduce.

    Args:
        workers: on the ring.
        nbytes: to be reduced.
    """
    return Cost(2 * (workers - 1), 2 * (workers - 1) * nbytes // workers)


def _neighbors(graph: Graph) -> list[dict[str, Any]]:
    """Every policy on ResNet-50, 8 workers, 10 Gbit/s, 50 us."""
    link = Link(latency=50e-6, bandwidth=1.25e9)

    def cost(nbytes: int) -> Cost:
        return ring(8, nbytes)

    servers: Iterable[Policy] = (
        schedule.unordered(),
        Policy("fifo", queue="fifo"),
        schedule.ordered("tic", schedule.tic(graph)),
        schedule.ordered("tac", schedule.tac(graph)),
        schedule.ordered("best", schedule.best(graph, evaluations=200)),
        schedule.p3(graph),
        schedule.byte_scheduler(graph),
    )
    rings: Iterable[Policy] = (
        schedule.wait_free(graph, cost),
        schedule.mg_wfbp(graph, cost, link),
        schedule.dear(graph, cost),
        schedule.dear(graph, cost, buckets=schedule.mg_wfbp(graph, cost, link).buckets),
    )
    rows = []
    for kind, policies, count in (("8 servers", servers, 8), ("ring", rings, 1)):
        for policy in policies:
            cluster = Cluster(8, count, link, stragglers=NOISE)
            run = schedule.simulate(graph, policy, cluster, steps=20)
            fused = len(policy.buckets) not in (0, len(graph.sends))
            rows.append(
                {
                    "over": kind,
                    "policy": policy.name + (" fused" if fused else ""),
                    "seconds": run.seconds_per_step(),
                    "exposed": run.exposed(0) / 20,
                    "buckets": len(policy.buckets) or len(graph.recvs),
                }
            )
    return rows


def _print(result: dict[str, Any]) -> None:
    keys = ("model", "graph", "rho", "workers", "servers", "seconds", "spread")
    keys = (*keys, "distinct")
    gains = ("tic", "tac", "fixed")
    rows = [
        [
            *(row[k] for k in keys),
            *(f"{100 * (row[k] - 1):+.1f} %" for k in gains),
            row["straggler"],
            row["straggler tac"],
            row["straggler fixed"],
        ]
        for row in result["rows"]
    ]
    columns = ("model", "graph", "rho", "W", "S", "s/step", "sd/mean", "distinct")
    columns = (*columns, *gains, "straggler", "tac", "fixed")
    show("Throughput over the mean random order", columns, rows)
    keys = ("over", "policy", "seconds", "exposed", "buckets")
    neighbors = [[row[k] for k in keys] for row in result["neighbors"]]
    show("ResNet-50, 8 workers, 10 Gbit/s, 50 us", keys, neighbors)
    print(result["conditions"])
