"""Steps with parameter servers: pulls, computation, pushes.

A parameter lives on the server that was least loaded when it was placed, the largest
first; its slices go round the servers from there (P3). A server sends to its workers
over one link and receives from them over another, and so does a worker. The order of
pulls is kept by the server that sends (TicTac); every worker asks for all its
parameters as soon as it may.

With a barrier a step starts when every worker has ended the last and every gradient
has arrived. Without, a parameter is pulled again as soon as all workers have pushed
its gradient.

Slices travel in segments, so that two workers share a server's link in turns, and two
servers a worker's.

Cost: O(log J) for each of J = workers * steps * (segments + operations) jobs.
"""

import math
import random

from relaxjax.schedule._cluster import Cluster
from relaxjax.schedule._engine import Engine, Job, Track
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._policy import Policy
from relaxjax.schedule._steps import Step, Worker, make_step, size_of
from relaxjax.schedule._timeline import Clock


class ServerSteps:
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
        self.engine, self.clock = Engine(), Clock(len(workers))
        self._graph, self._policy, self._workers = graph, policy, workers
        self._rng = rng
        self._rank = {name: i for i, name in enumerate(policy.order)}
        names = [*graph.recvs, *(n for n in graph.sends if n not in graph.recvs)]
        self._sizes = {name: size_of(graph, name, cluster) for name in names}
        self._owner = _place(self._sizes, cluster.servers)
        self._segment_bytes = cluster.segment_bytes
        credit = policy.credit_bytes
        self._server_link = cluster.server_link or cluster.link
        latency = self._server_link.latency
        self._server_out = [
            Track(f"server {s} out", credit, latency) for s in range(cluster.servers)
        ]
        self._server_in = [Track(f"server {s} in") for s in range(cluster.servers)]
        self._worker_in = [Track(f"worker {w.index} in") for w in workers]
        self._worker_out = [
            Track(f"worker {w.index} out", credit, w.kind.link.latency) for w in workers
        ]

    def run(self, steps: int) -> None:
        """Simulates `steps` steps.

        Args:
            steps: how many.
        """
        self._steps = steps
        self._built: dict[int, list[tuple[Step, dict[str, list[Job]]]]] = {}
        self._begin(0)
        self.engine.run()

    def _begin(self, step: int) -> None:
        """Every worker at once: the first step, and each step after a barrier."""
        for name in self._graph.recvs:
            self._request(name, step)
        for worker, (jobs, _) in zip(self._workers, self._jobs(step), strict=True):
            self.clock.begin(worker.index, self.engine.now)
            self.engine.met(jobs.begin)

    def _jobs(self, step: int) -> list[tuple[Step, dict[str, list[Job]]]]:
        if step not in self._built:
            self._built.pop(step - 2, None)
            self._built[step] = self._build(step)
        return self._built[step]

    def _build(self, step: int) -> list[tuple[Step, dict[str, list[Job]]]]:
        arrived = {name: Job(None, name, step=step) for name in self._graph.sends}
        over = Job(None, "step", step=step)
        built = []
        for worker in self._workers:
            jobs = make_step(self._graph, worker, step)
            jobs.begin.waiting += 1
            pulls = self._pulls(worker, jobs)
            ended = Job(None, "ended")
            ended.need(jobs.end)
            for name, (_, needs) in self._graph.sends.items():
                for push in self._push(worker, step, name):
                    for need in needs:
                        push.need(jobs.recvs.get(need) or jobs.ops[need])
                    arrived[name].need(push)
                    ended.need(push)
                    if not needs:
                        push.need(jobs.begin)
            ended.then = lambda w=worker: self._ended(w, step)
            over.need(ended)
            built.append((jobs, pulls))
        over.then = lambda: self._over(step)
        for name, gate in arrived.items():
            gate.then = lambda name=name: self._aggregated(name, step)
        return built

    def _ended(self, worker: Worker, step: int) -> None:
        self.clock.end(worker.index, self.engine.now)
        if not self._policy.barrier and step + 1 < self._steps:
            self.clock.begin(worker.index, self.engine.now)
            jobs, _ = self._jobs(step + 1)[worker.index]
            self.engine.met(jobs.begin)

    def _over(self, step: int) -> None:
        if step + 1 == self._steps:
            return
        if self._policy.barrier:
            self._begin(step + 1)
            return
        for name in self._graph.recvs:
            if name not in self._graph.sends:
                self._request(name, step + 1)

    def _aggregated(self, name: str, step: int) -> None:
        known = name in self._graph.recvs
        if known and not self._policy.barrier and step + 1 < self._steps:
            self._request(name, step + 1)

    def _request(self, name: str, step: int) -> None:
        """Every worker asks for a parameter; they are served in turns."""
        requests = [pulls[name] for _, pulls in self._jobs(step)]
        for segment in zip(*requests, strict=True):
            for pull in segment:
                self.engine.met(pull)

    def _pulls(self, worker: Worker, jobs: Step) -> dict[str, list[Job]]:
        names = list(self._graph.recvs)
        if self._policy.queue == "random":
            self._rng.shuffle(names)
        ahead = [0.0] * len(self._server_out)
        return {name: self._pull(worker, jobs, name, ahead) for name in names}

    def _pull(
        self, worker: Worker, jobs: Step, name: str, ahead: list[float]
    ) -> list[Job]:
        """The segments of a pull; each waits for its request.

        Without an order, a segment's priority is the bytes `ahead` of it in its
        worker's own order: a server shares its link fairly among the workers.
        """
        pulls = []
        for i, nbytes, messages in self._segments(name):
            server = (self._owner[name] + i) % len(self._server_out)
            pull = Job(
                self._server_out[server],
                name,
                worker.weight * self._server_link.seconds(nbytes, messages),
                priority=ahead[server]
                if self._policy.queue == "random"
                else self._rank.get(name, 0),
                nbytes=nbytes,
                worker=worker.index,
                step=jobs.begin.step,
            )
            pull.receiver = self._worker_in[worker.index]
            pull.receiving = worker.kind.link.seconds(nbytes, messages)
            pull.waiting = 1
            ahead[server] += nbytes
            jobs.recvs[name].need(pull)
            pulls.append(pull)
        return pulls

    def _push(self, worker: Worker, step: int, name: str) -> list[Job]:
        by_priority = self._policy.push_queue == "priority"
        pushes = []
        for i, nbytes, messages in self._segments(name):
            push = Job(
                self._worker_out[worker.index],
                f"push {name}",
                worker.kind.link.seconds(nbytes, messages),
                priority=self._rank.get(name, 0) if by_priority else 0,
                nbytes=nbytes,
                worker=worker.index,
                step=step,
            )
            server = (self._owner[name] + i) % len(self._server_in)
            push.receiver = self._server_in[server]
            push.receiving = worker.weight * self._server_link.seconds(nbytes, messages)
            pushes.append(push)
        return pushes

    def _segments(self, name: str) -> list[tuple[int, float, int]]:
        """Slice, bytes and latencies of each segment: the first pays for its slice."""
        nbytes, most = self._sizes[name], self._policy.partition_bytes
        slices = max(1, math.ceil(nbytes / most)) if most else 1
        each = max(1, math.ceil(nbytes / slices / self._segment_bytes))
        return [
            (i, nbytes / slices / each, 1 if not j else 0)
            for i in range(slices)
            for j in range(each)
        ]


def _place(sizes: dict[str, float], servers: int) -> dict[str, int]:
    """The server of each parameter: the largest first, to the least loaded."""
    load = [0.0] * servers
    owner = {}
    for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
        owner[name] = load.index(min(load))
        load[owner[name]] += sizes[name]
    return owner
