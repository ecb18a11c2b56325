"""One worker's operations in one step, as jobs; how a step is begun and ended.

Shared by the parameter-server and the collective simulation.

Cost: O(V + E) per worker and step.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from relaxjax.schedule._cluster import Cluster, Stragglers, Workers
from relaxjax.schedule._engine import Job, Track
from relaxjax.schedule._graph import Graph

REPRESENTED = 1024
"""Up to so many workers are simulated one by one."""


@dataclass
class Worker:
    """A simulated worker, or one that stands for many identical ones.

    Attributes:
        index: its number.
        kind: its class.
        weight: how many workers it stands for.
        compute: its computing unit.
        stretch: draws its straggler factor of a step.
    """

    index: int
    kind: Workers
    weight: int
    compute: Track
    stretch: Callable[[], float]


@dataclass
class Step:
    """The jobs of one worker in one step.

    Attributes:
        begin: a gate; operations that need nothing wait for it.
        recvs: a gate for each parameter, open when it has arrived.
        ops: by name.
        end: a gate, open when all operations are done.
    """

    begin: Job
    recvs: dict[str, Job]
    ops: dict[str, Job]
    end: Job


def make_workers(
    cluster: Cluster, rng: random.Random, *, variety: int = 1
) -> list[Worker]:
    """Every worker, or representatives where there are more than 1024.

    A class of n identical workers whose computation varies is represented by its
    slowest (an order statistic), its fastest and typical ones that stand for the
    rest; a class that does not vary, by typical ones.

    Args:
        cluster: the workers.
        rng: source of the straggler factors.
        variety: how many typical ones there are: 1 where all receive in one order.
    """
    noise = cluster.stragglers
    shares = (
        [(kind, 1, noise.factor) for kind in cluster.classes for _ in range(kind.count)]
        if cluster.size <= REPRESENTED
        else [
            (kind, weight, draw)
            for kind in cluster.classes
            for weight, draw in _representatives(kind.count, noise, variety)
        ]
    )
    return [
        Worker(i, kind, weight, Track(f"worker {i} compute"), lambda d=draw: d(rng))
        for i, (kind, weight, draw) in enumerate(shares)
    ]


def _representatives(
    n: int, noise: Stragglers, variety: int
) -> Iterator[tuple[int, Callable[[random.Random], float]]]:
    typical = n
    if noise.varies and n > 2:
        yield 1, lambda rng: noise.slowest(n, rng)
        yield 1, lambda rng: noise.fastest(n, rng)
        typical -= 2
    for i in range(min(variety, typical)):
        yield (typical + i) // min(variety, typical), noise.typical


def make_step(graph: Graph, worker: Worker, step: int) -> Step:
    """The jobs of a worker's step, not yet released.

    Args:
        graph: the worker's graph.
        worker: whose step it is.
        step: its index.
    """
    stretch = worker.stretch() / worker.kind.speed
    result = Step(
        begin=Job(None, "begin", worker=worker.index, step=step),
        recvs={name: Job(None, name, step=step) for name in graph.recvs},
        ops={},
        end=Job(None, "end", worker=worker.index, step=step),
    )
    result.end.need(result.begin)
    for place, (name, (seconds, needs)) in enumerate(graph.ops.items()):
        job = Job(
            worker.compute,
            name,
            seconds * stretch,
            priority=step * len(graph.ops) + place,
            worker=worker.index,
            step=step,
        )
        for need in needs:
            job.need(result.recvs[need] if need in result.recvs else result.ops[need])
        if not needs:
            job.need(result.begin)
        result.end.need(job)
        result.ops[name] = job
    return result


def size_of(graph: Graph, name: str, cluster: Cluster) -> float:
    """Bytes of a transfer: as known, or else as many as take its time on the link.

    Args:
        graph: the worker's graph.
        name: of a recv or send.
        cluster: gives the link.
    """
    if name in graph.nbytes:
        return graph.nbytes[name]
    link = cluster.classes[0].link
    seconds = graph.recvs[name] if name in graph.recvs else graph.sends[name][0]
    return max(0.0, seconds - link.latency) * link.bandwidth
