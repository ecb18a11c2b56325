"""One worker's operations in one step, as jobs; how a step is begun and ended.

Shared by the parameter-server and the collective simulation.

Cost: O(V + E) per worker and step.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from relaxjax.schedule._cluster import Cluster
from relaxjax.schedule._engine import Engine, SimulatedJob
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._policies import Policy
from relaxjax.schedule._timeline import TraceClock
from relaxjax.schedule._workers import Worker

Built = TypeVar("Built")


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
    clock: TraceClock = field(init=False)

    def __post_init__(self) -> None:
        """Makes the clock."""
        self.clock = TraceClock(len(self.workers))

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

    begin: SimulatedJob
    recvs: dict[str, SimulatedJob]
    ops: dict[str, SimulatedJob]
    end: SimulatedJob


def make_step(graph: Graph, worker: Worker, step: int) -> Step:
    """The jobs of a worker's step, not yet released.

    Args:
        graph: the worker's graph.
        worker: whose step it is.
        step: its index.
    """
    stretch = worker.stretch() / worker.kind.speed
    result = Step(
        begin=SimulatedJob(None, "begin", worker=worker.index, step=step),
        recvs={name: SimulatedJob(None, name, step=step) for name in graph.recvs},
        ops={},
        end=SimulatedJob(None, "end", worker=worker.index, step=step),
    )
    result.end.need(result.begin)
    for place, (name, (seconds, needs)) in enumerate(graph.ops.items()):
        job = SimulatedJob(
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
