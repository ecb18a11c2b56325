"""Figure 4: how many workers the simulator takes."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.models import MODELS, Model
from benchmarks.report import conditions, peak_gib, plot, save, show
from relaxjax import schedule
from relaxjax.schedule import Cluster, Graph, Link, Policy, Stragglers, Workers

STEPS = 10
Case = tuple[str, Callable[[], Cluster], int]
"""Name, cluster and steps of a row."""


def scale(
    *,
    model: Callable[[], Model] = MODELS["resnet50"],
    clusters: Sequence[Case] | None = None,
    out: str = "runs/orders",
) -> dict[str, Any]:
    """Seconds and memory of simulations from 16 to 100 000 workers.

    Args:
        model: whose training step is simulated.
        clusters: name, cluster and steps of each row; by default `CLUSTERS`.
        out: folder of the JSON and the plot.

    Returns:
        Conditions and one row for each cluster.
    """
    made = model()
    graph = Graph.from_loss(made.loss, made.params, *made.args)
    graph = schedule.condensed(graph)
    policy = schedule.ordered("tac", schedule.tac(graph))
    rows = [
        _row(graph, policy, *case)
        for case in (CLUSTERS if clusters is None else clusters)
    ]
    result = {
        "conditions": conditions(
            model="resnet50 unless told otherwise: forward and backward, condensed",
            order="tac",
            servers="one for four workers, 10 Gbit/s, parameters spread evenly",
            links="10 Gbit/s; mixed: 10, 25, 5 and 100 Gbit/s",
            seed=0,
        ),
        "rows": rows,
    }
    _print(result)
    sizes = [row["workers"] for row in rows]
    lines = {"per simulated step": (sizes, [r["seconds"] / r["steps"] for r in rows])}
    plot(save(result, out, "scale"), "Simulator", ("workers", "seconds"), lines)
    return result


def _row(
    graph: Graph, policy: Policy, name: str, make: Callable[[], Cluster], steps: int
) -> dict[str, Any]:
    cluster = make()
    start = time.perf_counter()
    run = schedule.simulate(graph, policy, cluster, steps=steps)
    return {
        "cluster": name,
        "workers": cluster.size,
        "simulated": len(run.weights),
        "steps": steps,
        "spans": len(run.spans),
        "seconds": time.perf_counter() - start,
        "peak": peak_gib(),
        "step": run.seconds_per_step(),
        "straggler": run.straggler_effect(),
    }


def _print(result: dict[str, Any]) -> None:
    columns = ("cluster", "simulated", "steps", "spans", "seconds", "peak GiB so far")
    keys = ("cluster", "simulated", "steps", "spans", "seconds", "peak")
    columns, keys = (*columns, "s/step", "straggler"), (*keys, "step", "straggler")
    rows = [[row[k] for k in keys] for row in result["rows"]]
    show("Simulation at scale", columns, rows)
    print(result["conditions"])


def _uniform(workers: int, *, jitter: float = 0.05) -> Cluster:
    return Cluster(
        workers, server_link=_sharded(workers), stragglers=Stragglers(jitter=jitter)
    )


def _sharded(workers: int) -> Link:
    """One server for every four workers, parameters spread evenly: as one fast link."""
    servers = max(1, workers // 4)
    return Link(latency=50e-6 / servers, bandwidth=1.25e9 * servers)


def _mixed(workers: int) -> Cluster:
    """Four kinds of links and two speeds, with jitter and one in a hundred slow."""
    quarter = workers // 4
    return Cluster(
        [
            Workers(quarter, Link(50e-6, 1.25e9)),
            Workers(quarter, Link(50e-6, 3.125e9)),
            Workers(quarter, Link(200e-6, 6.25e8), speed=0.5),
            Workers(workers - 3 * quarter, Link(20e-6, 1.25e10)),
        ],
        server_link=_sharded(workers),
        stragglers=Stragglers(jitter=0.1, share=0.01, slowdown=2.0),
    )


CLUSTERS: tuple[Case, ...] = (
    ("16, one by one", lambda: _uniform(16), STEPS),
    ("64, one by one", lambda: _uniform(64), STEPS),
    ("100 000 identical", lambda: _uniform(100_000, jitter=0.0), STEPS),
    ("100 000, jitter", lambda: _uniform(100_000), STEPS),
    ("4096, mixed links, stragglers", lambda: _mixed(4096), STEPS),
    ("256, one by one", lambda: _uniform(256), 1),
    ("1024, one by one", lambda: _uniform(1024), 1),
)
"""Name, cluster and steps, by rising memory."""
