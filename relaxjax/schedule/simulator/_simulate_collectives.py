"""Steps with collectives: every bucket of gradients is reduced over all workers.

A collective starts when the last worker has its gradients, occupies the network (one
at a time, first come first served or by the policy's order) for messages * latency +
bytes / bandwidth of the slowest link, plus its codec's time, and ends for all workers
at once: in lock-step, like an all-reduce or a gossip round with a barrier. The next
step uses a parameter when its bucket is back.

With two phases (DeAR) a reduce-scatter follows the backward pass first in, first out,
and all-gathers follow when all of them are done, in the order of the next forward
pass. With `every` > 1 (local steps) most steps use their own gradients at once.

Cost: O(log J) for each of J = workers * steps * operations jobs.
"""

from relaxjax._core._checks import check_type
from relaxjax.schedule.graphs._hardware import Cost
from relaxjax.schedule.simulator._engine import SimulatedJob, Track
from relaxjax.schedule.simulator._placement import push_size
from relaxjax.schedule.simulator._steps import Scene, StepJobs, Worker, one_ahead


class CollectiveSteps:
    """Builds the jobs of each step and links one step to the next."""

    def __init__(self, scene: Scene, steps: int):
        self._scene, self._steps = scene, steps
        self._graph, self._policy = scene.graph, scene.policy
        self._jobs = one_ahead(self._build)
        self._network = Track("network")
        self._rank = scene.rank
        link = scene.cluster.classes[0].link
        self._bytes = {
            bucket: sum(push_size(scene.graph, name, link).nbytes for name in bucket)
            for bucket in scene.policy.buckets
        }
        self._seconds = {b: self._collective_seconds(n) for b, n in self._bytes.items()}

    def _collective_seconds(self, nbytes: float) -> float:
        assert self._policy.collective is not None
        cost = self._policy.collective(round(nbytes))
        check_type("collective(nbytes)", cost, Cost, "return Cost(messages, nbytes)")
        slowest = max(
            kind.link.seconds(cost.nbytes, cost.messages)
            for kind in self._scene.cluster.classes
        )
        return slowest + cost.codec_bytes / self._scene.cluster.codec_bandwidth

    def run(self) -> None:
        """Simulates all steps."""
        for jobs in self._jobs(0):
            for recv in jobs.recvs.values():
                self._scene.engine.count_down(recv)
        self._begin(0)
        self._scene.engine.run()

    def _begin(self, step: int) -> None:
        for worker, jobs in zip(self._scene.workers, self._jobs(step), strict=True):
            self._scene.begin(worker, jobs)

    def _build(self, step: int) -> list[StepJobs]:
        over = SimulatedJob(None, "step", step=step)
        over.then = lambda: self._over(step)
        built = []
        for worker in self._scene.workers:
            jobs = StepJobs.of(self._graph, worker, step)
            for gate in (jobs.begin, *jobs.recvs.values()):
                gate.waiting += 1
            over.need(jobs.end)
            jobs.end.then = lambda w=worker: self._ended(w, step)
            built.append(jobs)
        scattered = [self._reduce(bucket, built, step) for bucket in self._seconds]
        for bucket, last in zip(self._seconds, scattered, strict=True):
            if self._policy.phases == 2 and last.track is not None:
                last = self._message(bucket, "gather", step)
                last.priority = self._first(bucket)
                for other in scattered:
                    last.need(other)
            over.need(last)
            last.then = lambda bucket=bucket: self._arrived(bucket, step)
        return built

    def _reduce(
        self, bucket: tuple[str, ...], built: list[StepJobs], step: int
    ) -> SimulatedJob:
        """A collective over all workers, or in a local step a gate."""
        if (step + 1) % self._policy.every:
            job = SimulatedJob(None, "local", step=step)
        else:
            job = self._message(bucket, "reduce", step)
            job.priority = -1.0
            if self._policy.queue == "priority":
                job.priority = self._first(bucket) - len(self._rank)
        for jobs in built:
            job.need(jobs.begin)
            for name in bucket:
                jobs.feed(job, self._graph.sends[name][1])
        return job

    def _first(self, bucket: tuple[str, ...]) -> int:
        """Rank of the bucket's most urgent parameter."""
        return min(self._rank.get(name, 0) for name in bucket)

    def _message(self, bucket: tuple[str, ...], phase: str, step: int) -> SimulatedJob:
        others = len(bucket) - 1
        return SimulatedJob(
            self._network,
            f"{phase} {bucket[0]}" + (f" +{others}" if others else ""),
            self._seconds[bucket] / self._policy.phases,
            place=(step, self._policy.buckets.index(bucket)),
            nbytes=self._bytes[bucket] / self._policy.phases,
            step=step,
        )

    def _arrived(self, bucket: tuple[str, ...], step: int) -> None:
        if step + 1 < self._steps:
            for jobs in self._jobs(step + 1):
                for name in bucket:
                    if name in jobs.recvs:
                        self._scene.engine.count_down(jobs.recvs[name])

    def _ended(self, worker: Worker, step: int) -> None:
        self._scene.clock.end(worker.index, self._scene.engine.now)
        if step + 1 == self._steps:
            return
        jobs = self._jobs(step + 1)[worker.index]
        for name, recv in jobs.recvs.items():
            if name not in self._graph.sends:
                self._scene.engine.count_down(recv)
        if not self._policy.barrier:
            self._scene.begin(worker, jobs)

    def _over(self, step: int) -> None:
        if self._policy.barrier and step + 1 < self._steps:
            self._begin(step + 1)
