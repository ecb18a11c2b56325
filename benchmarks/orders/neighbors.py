"""Figure 3, second part: every policy on one simulator."""

import itertools
from typing import Any

from benchmarks.report import Table
from relaxjax import schedule
from relaxjax.schedule import Cluster, Cost, Graph, Link, Policy, Stragglers

LINK = Link(latency=50e-6, bandwidth=1.25e9)
NOISE = Stragglers(jitter=0.01)


def ring(workers: int, nbytes: int) -> Cost:
    """What one of so many workers does in a ring all-reduce of so many bytes."""
    return Cost(2 * (workers - 1), 2 * (workers - 1) * nbytes // workers)


def neighbors(
    graph: Graph, *, workers: int = 8, steps: int = 20
) -> list[dict[str, Any]]:
    """Every policy on one training step, 10 Gbit/s and 50 microseconds.

    Args:
      graph: the training step.
      workers: number of workers, and of servers where there are any.
      steps: number of steps that are simulated.
    """

    def cost(nbytes: int) -> Cost:
        return ring(workers, nbytes)

    fused = schedule.mg_wfbp(graph, cost, LINK)
    servers: tuple[Policy, ...] = (
        schedule.unordered(),
        Policy("fifo", queue="fifo"),
        schedule.ordered("tic", schedule.tic(graph)),
        schedule.ordered("tac", schedule.tac(graph)),
        schedule.ordered("best", schedule.best(graph, evaluations=200)),
        schedule.p3(graph),
        schedule.byte_scheduler(graph),
    )
    rings: tuple[Policy, ...] = (
        schedule.wait_free(graph, cost),
        fused,
        schedule.dear(graph, cost),
        schedule.dear(graph, cost, buckets=fused.buckets),
    )
    return [
        _row(graph, policy, Cluster(workers, count, LINK, stragglers=NOISE), steps)
        for policy, count in itertools.chain(
            ((policy, workers) for policy in servers), ((policy, 1) for policy in rings)
        )
    ]


def _row(graph: Graph, policy: Policy, cluster: Cluster, steps: int) -> dict[str, Any]:
    run = schedule.simulate(graph, policy, cluster, steps=steps)
    fused = len(policy.buckets) not in (0, len(graph.sends))
    return {
        "over": "ring" if policy.collective else f"{cluster.servers} servers",
        "policy": policy.name + (" fused" if fused else ""),
        "seconds": run.seconds_per_step(),
        "exposed": run.exposed(0) / steps,
        "buckets": len(policy.buckets) or len(graph.recvs),
    }


def neighbors_table(rows: list[dict[str, Any]]) -> Table:
    """The table of what `neighbors` returns."""
    return Table.of("Every policy, 10 Gbit/s, 50 us", rows, *rows[0])
