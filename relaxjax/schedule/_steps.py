"""One worker's operations in one step, as jobs; how a step is begun and ended.

Shared by the parameter-server and the collective simulation.

Cost: O(V + E) per worker and step.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from relaxjax.schedule._cluster import Cluster, Stragglers, Workers
from relaxjax.schedule._engine import Engine, Job, Track
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._policy import Policy
from relaxjax.schedule._timeline import Clock

Built = TypeVar("Built")

REPRESENTED = 1024
"""Up to so many workers are simulated one by one."""

_EXTREMES = 4
"""Workers of a class that are simulated one by one where not all are."""

Draw = Callable[[int, random.Random], float]
"""From the step to a straggler factor."""


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
class Scene:
    """What a simulation is told, and where it writes what happened.

    Attributes:
        graph: of each worker.
        policy: what is sent, when and in which order.
        cluster: links and servers.
        workers: those that are simulated.
        rng: source of random orders.
        engine: runs the jobs.
        clock: notes when workers begin and end their steps.
    """

    graph: Graph
    policy: Policy
    cluster: Cluster
    workers: list[Worker]
    rng: random.Random
    engine: Engine = field(default_factory=Engine)
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        """Makes the clock."""
        self.clock = Clock(len(self.workers))

    @property
    def rank(self) -> dict[str, int]:
        """Places in the policy's order."""
        return {name: i for i, name in enumerate(self.policy.order)}

    def begin(self, worker: Worker, jobs: "Step") -> None:
        """A worker begins a step now.

        Args:
            worker: which.
            jobs: of the step.
        """
        self.clock.begin(worker.index, self.engine.now)
        self.engine.met(jobs.begin)


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

    A class of n identical workers is represented by `variety` typical ones, which
    stand for all but four of them, and by those four, spread evenly among the others,
    as a server serves workers in turns. In every step another one of the four is the
    slowest of the class (an order statistic) and another one the fastest.

    Args:
        cluster: the workers.
        rng: source of the straggler factors.
        variety: how many typical ones there are.
    """
    everyone = cluster.size <= REPRESENTED
    shares = [
        (kind, weight, draw)
        for kind in cluster.classes
        for weight, draw in _representatives(
            kind.count, cluster.stragglers, kind.count if everyone else variety
        )
    ]
    return [
        Worker(i, kind, weight, Track(f"worker {i} compute"), _by_step(draw, rng))
        for i, (kind, weight, draw) in enumerate(shares)
    ]


def _by_step(draw: Draw, rng: random.Random) -> Callable[[], float]:
    step = itertools.count()
    return lambda: draw(next(step), rng)


def _representatives(
    n: int, noise: Stragglers, variety: int
) -> Iterator[tuple[int, Draw]]:
    """Weights and draws of the representatives of n workers."""
    if n <= variety + _EXTREMES:
        yield from [(1, lambda step, rng: noise.factor(rng))] * n
        return
    gaps = _EXTREMES - 1
    for i in range(_EXTREMES):
        yield 1, lambda step, rng, i=i: _extreme(noise, n, (step + i) % _EXTREMES, rng)
        # The typical ones of the gap after it; each stands for its share of the rest.
        for k in range(
            i * variety // gaps, (i + 1) * variety // gaps if i < gaps else 0
        ):
            share = (n - _EXTREMES + k) // variety
            yield share, lambda step, rng: noise.typical(rng)


def _extreme(noise: Stragglers, n: int, turn: int, rng: random.Random) -> float:
    """Factor of one of the four: each is the slowest and the fastest in its turn."""
    if turn == 0:
        return noise.slowest(n, rng)
    return noise.fastest(n, rng) if turn == 2 else noise.factor(rng)


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


def one_ahead(build: Callable[[int], Built]) -> Callable[[int], Built]:
    """Remembers the jobs of the last two steps, as a step is linked to the next.

    Args:
        build: the jobs of a step.
    """
    built: dict[int, Built] = {}

    def jobs(step: int) -> Built:
        if step not in built:
            built.pop(step - 2, None)
            built[step] = build(step)
        return built[step]

    return jobs


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
