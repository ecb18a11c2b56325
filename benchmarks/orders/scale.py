"""Figure 4: how many workers the simulator takes."""

import time
from collections.abc import Callable
from typing import Any

from benchmarks.models import MODELS
from benchmarks.report import Plot, Result, Run, Table, benchmark, peak_gib
from relaxjax import schedule
from relaxjax.schedule import Cluster, Graph, Link, Policy, Stragglers, Workers

STEPS = 10
MODEL = MODELS["resnet50"]
Case = tuple[str, Callable[[], Cluster], int]
"""Name, cluster and steps of a row."""


@benchmark("scale", family="orders")
def scale(run: Run) -> Result:
    """Seconds and memory of simulations from 16 to 100 000 workers."""
    model = MODEL()
    graph = Graph.from_loss(model.loss, model.params, *model.args)
    graph = schedule.condensed(graph)
    policy = schedule.ordered("tac", schedule.tac(graph))
    rows = [_row(graph, policy, *case) for case in CLUSTERS]
    sizes = [row["workers"] for row in rows]
    lines = {"per simulated step": (sizes, [r["seconds"] / r["steps"] for r in rows])}
    conditions = run.conditions(
        model="resnet50: forward and backward, condensed",
        order="tac",
        servers="one for four workers, 10 Gbit/s, parameters spread evenly",
        links="10 Gbit/s; mixed: 10, 25, 5 and 100 Gbit/s",
        seed=0,
    )
    table = Table.of(
        "Simulation at scale",
        rows,
        *("cluster", "simulated", "steps", "spans", "seconds"),
        ("peak GiB so far", "peak"),
        ("s/step", "step"),
        "straggler",
    )
    return run.finish(
        {"conditions": conditions, "rows": rows},
        tables=[table],
        plots=[Plot("Simulator", ("workers", "seconds"), lines)],
    )


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
