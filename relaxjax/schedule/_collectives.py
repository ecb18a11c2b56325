"""Steps with collectives: every bucket of gradients is reduced over all workers.

A collective starts when the last worker has its gradients, occupies the network (one
at a time, first come first served or by the policy's order) for messages * latency +
bytes / bandwidth of the slowest link, plus its codec's time, and ends for all workers
at once: lock-step, as an all-reduce or a gossip round with a barrier is. The next step
uses a parameter when its bucket is back.

With two phases (DeAR) a reduce-scatter follows the backward pass first in, first out,
and all-gathers follow when all of them are done, in the order of the next forward
pass. With `every` > 1 (local steps) most steps use their own gradients at once.

Cost: O(log J) for each of J = workers * steps * operations jobs.
"""

import random

from relaxjax.schedule._cluster import Cluster
from relaxjax.schedule._engine import Engine, Job, Track
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._policy import Policy
from relaxjax.schedule._steps import Step, Worker, make_step, size_of
from relaxjax.schedule._timeline import Clock


class CollectiveSteps:
    """Builds the jobs of each step and links one step to the next.

    Attributes:
        engine: runs the jobs.
        clock: notes when workers begin and end their steps.
    """

    def __init__(
        self,
        graph: Graph,
        policy: Policy,
        cluster: Cluster,
        workers: list[Worker],
        rng: random.Random,
    ):
        del rng  # nothing is left to chance here but stragglers
        self.engine, self.clock = Engine(), Clock(len(workers))
        self._graph, self._policy, self._workers = graph, policy, workers
        self._cluster = cluster
        self._network = Track("network")
        self._rank = {name: i for i, name in enumerate(policy.order)}
        self._seconds = {bucket: self._time_of(bucket) for bucket in policy.buckets}
        self._bytes = {
            bucket: sum(size_of(graph, name, cluster) for name in bucket)
            for bucket in policy.buckets
        }

    def _time_of(self, bucket: tuple[str, ...]) -> float:
        nbytes = sum(size_of(self._graph, name, self._cluster) for name in bucket)
        assert self._policy.collective is not None
        cost = self._policy.collective(round(nbytes))
        slowest = max(
            kind.link.seconds(cost.nbytes, cost.messages)
            for kind in self._cluster.classes
        )
        return slowest + cost.codec_bytes / self._cluster.codec_bandwidth

    def run(self, steps: int) -> None:
        """Simulates `steps` steps.

        Args:
            steps: how many.
        """
        self._steps = steps
        self._built: dict[int, list[Step]] = {}
        for jobs in self._jobs(0):
            for recv in jobs.recvs.values():
                self.engine.met(recv)
        self._begin(0)
        self.engine.run()

    def _begin(self, step: int) -> None:
        for worker, jobs in zip(self._workers, self._jobs(step), strict=True):
            self.clock.begin(worker.index, self.engine.now)
            self.engine.met(jobs.begin)

    def _jobs(self, step: int) -> list[Step]:
        if step not in self._built:
            self._built.pop(step - 2, None)
            self._built[step] = self._build(step)
        return self._built[step]

    def _build(self, step: int) -> list[Step]:
        over = Job(None, "step", step=step)
        over.then = lambda: self._over(step)
        built = []
        for worker in self._workers:
            jobs = make_step(self._graph, worker, step)
            for gate in (jobs.begin, *jobs.recvs.values()):
                gate.waiting += 1
            over.need(jobs.end)
            jobs.end.then = lambda w=worker: self._ended(w, step)
            built.append(jobs)
        scattered = [self._reduce(bucket, built, step) for bucket in self._seconds]
        for bucket, job in zip(self._seconds, scattered, strict=True):
            last = job
            if self._policy.phases == 2 and job.track is not None:
                last = self._message(bucket, "gather", step)
                last.priority = self._first(bucket)
                for other in scattered:
                    last.need(other)
            over.need(last)
            last.then = lambda bucket=bucket: self._arrived(bucket, step)
        return built

    def _reduce(self, bucket: tuple[str, ...], built: list[Step], step: int) -> Job:
        """A collective over all workers, or nothing in a local step."""
        local = (step + 1) % self._policy.every != 0
        job = Job(None, "local", step=step)
        if not local:
            job = self._message(bucket, "reduce", step)
            job.priority = -1.0
            if self._policy.queue == "priority":
                job.priority = self._first(bucket) - len(self._rank)
        for jobs in built:
            job.need(jobs.begin)
            for name in bucket:
                for need in self._graph.sends[name][1]:
                    job.need(jobs.recvs.get(need) or jobs.ops[need])
        return job

    def _first(self, bucket: tuple[str, ...]) -> int:
        """Rank of the bucket's most urgent parameter."""
        return min(self._rank.get(name, 0) for name in bucket)

    def _message(self, bucket: tuple[str, ...], what: str, step: int) -> Job:
        return Job(
            self._network,
            f"{what} {bucket[0]}" + (f" +{len(bucket) - 1}" if len(bucket) > 1 else ""),
            self._seconds[bucket] / self._policy.phases,
            nbytes=self._bytes[bucket] / self._policy.phases,
            step=step,
        )

    def _arrived(self, bucket: tuple[str, ...], step: int) -> None:
        if step + 1 < self._steps:
            for jobs in self._jobs(step + 1):
                for name in bucket:
                    if name in jobs.recvs:
                        self.engine.met(jobs.recvs[name])

    def _ended(self, worker: Worker, step: int) -> None:
        self.clock.end(worker.index, self.engine.now)
        if step + 1 == self._steps:
            return
        jobs = self._jobs(step + 1)[worker.index]
        for name, recv in jobs.recvs.items():
            if name not in self._graph.sends:
                self.engine.met(recv)
        if not self._policy.barrier:
            self.clock.begin(worker.index, self.engine.now)
            self.engine.met(jobs.begin)

    def _over(self, step: int) -> None:
        if self._policy.barrier and step + 1 < self._steps:
            self._begin(step + 1)
