"""Figure 4: how many workers the simulator takes."""

import time
from collections.abc import Callable
from typing import Any

from relaxjax import schedule
from relaxjax.bench._report import conditions, peak_gib, plot, save, show
from relaxjax.bench._zoo import MODELS
from relaxjax.schedule import Cluster, Graph, Link, Stragglers, Workers

STEPS = 10


def scale(*, out: str = "runs/orders") -> dict[str, Any]:
    """Seconds and memory of simulations from 16 to 100 000 workers.

    Args:
        out: folder of the JSON and the plot.

    Returns:
        Conditions and one row for each cluster.
    """
    model = MODELS["resnet50"]()
    graph = Graph.from_loss(model.loss, model.params, *model.args)
    graph = schedule.condensed(graph)
    policy = schedule.ordered("tac", schedule.tac(graph))
    rows = []
    for name, make, steps in CLUSTERS:
        cluster = make()
        start = time.perf_counter()
        run = schedule.simulate(graph, policy, cluster, steps=steps)
        rows.append(
            {
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
        )
    result = {
        "conditions": conditions(
            model="resnet50, forward and backward, condensed",
            order="tac",
            servers="one for four workers, 10 Gbit/s, parameters spread evenly",
            links="10 Gbit/s; mixed: 10, 25, 5 and 100 Gbit/s",
            seed=0,
        ),
        "rows": rows,
    }
    columns = ("cluster", "simulated", "steps", "spans", "seconds", "peak GiB so far")
    keys = ("cluster", "simulated", "steps", "spans", "seconds", "peak")
    columns, keys = (*columns, "s/step", "straggler"), (*keys, "step", "straggler")
    show("Simulation at scale", columns, [[row[k] for k in keys] for row in rows])
    print(result["conditions"])
    lines = {
        "seconds per simulated step": (
            [row["workers"] for row in rows],
            [row["seconds"] / row["steps"] for row in rows],
        )
    }
    plot(save(result, out, "scale"), "Simulator", ("workers", "seconds"), lines)
    return result


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


CLUSTERS: tuple[tuple[str, Callable[[], Cluster], int], ...] = (
    ("16, one by one", lambda: _uniform(16), STEPS),
    ("64, one by one", lambda: _uniform(64), STEPS),
    ("100 000 identical", lambda: _uniform(100_000, jitter=0.0), STEPS),
    ("100 000, jitter", lambda: _uniform(100_000), STEPS),
    ("4096, mixed links, stragglers", lambda: _mixed(4096), STEPS),
    ("256, one by one", lambda: _uniform(256), 1),
    ("1024, one by one", lambda: _uniform(1024), 1),
)
"""Name, cluster and steps, by rising memory."""
