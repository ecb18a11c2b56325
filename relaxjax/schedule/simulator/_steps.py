"""The workers that are simulated, and the jobs of one worker in one step.

Shared by the parameter-server and the collective simulation.

Every worker is simulated, or representatives where there are more than 1024. Of a class
of n identical workers `variety` typical ones then stand for all but four. These four,
spread evenly among the others, since a server serves workers in turns, stand only for
themselves: in every step another one of them is the slowest of all n and another one
the fastest, by order statistics (see `_cluster`).

Cost: O(V + E) per worker and step.
"""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from relaxjax.schedule.graphs._graph import Graph
from relaxjax.schedule.simulator._cluster import Cluster, Stragglers, Workers
from relaxjax.schedule.simulator._engine import Engine, SimulatedJob, Track
from relaxjax.schedule.simulator._policies import Policy
from relaxjax.schedule.simulator._timeline import TraceClock

Built = TypeVar("Built")

REPRESENTED = 1024
"""The most workers that are simulated one by one."""

_EXTREMES = 4
"""Workers of a class that stand only for themselves when others are represented."""


@dataclass
class Worker:
    """A simulated worker, or one that stands for many identical ones.

    Attributes:
      index: its number.
      kind: its class.
      weight: number of workers it stands for.
      compute: its computing unit.
      stretch: draws its straggler factor of a step.
    """

    index: int
    kind: Workers
    weight: int
    compute: Track
    stretch: Callable[[], float]


def make_workers(cluster: Cluster, rng: random.Random, variety: int) -> list[Worker]:
    """Every worker, or representatives; factors are drawn from `rng`."""
    everyone = cluster.size <= REPRESENTED
    shares = [
        (kind, weight, stretch)
        for kind in cluster.classes
        for weight, stretch in _representatives(
            kind.count, cluster.stragglers, kind.count if everyone else variety, rng
        )
    ]
    return [
        Worker(i, kind, weight, Track(f"worker {i} compute"), stretch)
        for i, (kind, weight, stretch) in enumerate(shares)
    ]


def _representatives(
    n: int, noise: Stragglers, variety: int, rng: random.Random
) -> Iterator[tuple[int, Callable[[], float]]]:
    """Weights and factors of the representatives of n workers."""
    one = partial(noise.factor, rng)
    if n <= variety + _EXTREMES:
        yield from [(1, one)] * n
        return
    gaps = _EXTREMES - 1
    draws = [partial(noise.slowest, n, rng), one, partial(noise.fastest, n, rng), one]
    for i in range(_EXTREMES):
        # Each of the four is the slowest and the fastest in its turn.
        turns = itertools.cycle(draws[i:] + draws[:i])
        yield 1, lambda turns=turns: next(turns)()
        # The typical ones of the gap that follows; each has its share of the rest.
        for k in range(
            i * variety // gaps, (i + 1) * variety // gaps if i < gaps else 0
        ):
            share = (n - _EXTREMES + k) // variety
            yield share, lambda: noise.typical(rng)


@dataclass
class Scene:
    """What is simulated, and the engine and the clock that run it.

    Attributes:
      graph: the graph of each worker.
      policy: what is sent, when and in which order.
      cluster: links and servers.
      workers: those that are simulated.
      rng: source of random orders.
      clock: notes when workers begin and end their steps.
      engine: runs the jobs.
    """

    graph: Graph
    policy: Policy
    cluster: Cluster
    workers: list[Worker]
    rng: random.Random
    clock: TraceClock
    engine: Engine = field(default_factory=Engine)

    @property
    def rank(self) -> dict[str, int]:
        """Places in the policy's order."""
        return {name: i for i, name in enumerate(self.policy.order)}

    def begin(self, worker: Worker, jobs: "StepJobs") -> None:
        """A worker begins a step now."""
        self.clock.begin(worker.index, self.engine.now)
        self.engine.count_down(jobs.begin)


@dataclass
class StepJobs:
    """The jobs of one worker in one step.

    Attributes:
      begin: a gate; operations that need nothing wait for it.
      recvs: a gate for each parameter, open when it has arrived.
      ops: operations by name.
      end: a gate, open when all parameters have arrived and all operations are done.
    """

    begin: SimulatedJob
    recvs: dict[str, SimulatedJob]
    ops: dict[str, SimulatedJob]
    end: SimulatedJob

    @classmethod
    def of(cls, graph: Graph, worker: Worker, step: int) -> "StepJobs":
        """The jobs of a worker's step, none of them released yet."""
        stretch = worker.stretch() / worker.kind.speed
        jobs = cls(
            begin=SimulatedJob(None, "begin", worker=worker.index, step=step),
            recvs={name: SimulatedJob(None, name, step=step) for name in graph.recvs},
            ops={},
            end=SimulatedJob(None, "end", worker=worker.index, step=step),
        )
        for gate in (jobs.begin, *jobs.recvs.values()):
            jobs.end.need(gate)
        for place, (name, (seconds, needs)) in enumerate(graph.ops.items()):
            job = SimulatedJob(
                worker.compute,
                name,
                seconds * stretch,
                priority=step * len(graph.ops) + place,
                worker=worker.index,
                step=step,
            )
            jobs.feed(job, needs)
            if not needs:
                job.need(jobs.begin)
            jobs.end.need(job)
            jobs.ops[name] = job
        return jobs

    def feed(self, job: SimulatedJob, needs: Iterable[str]) -> None:
        """Makes a job wait for recvs and operations."""
        for need in needs:
            job.need(self.recvs.get(need) or self.ops[need])


def one_ahead(build: Callable[[int], Built]) -> Callable[[int], Built]:
    """Caches the jobs of the last two steps, since a step is linked to the next."""
    built: dict[int, Built] = {}

    def jobs(step: int) -> Built:
        if step not in built:
            built.pop(step - 2, None)
            built[step] = build(step)
        return built[step]

    return jobs
