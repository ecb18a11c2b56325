"""A slow simulator of parameter servers that a person can check by eye.

It shares no code with `relaxjax.schedule` but the cluster, the policy and the graph,
which are data. There are no gates, no callbacks and no counters: at every instant
everything that is not done is looked at again. Its rules, in full:

- A parameter lives on the least loaded server, the largest parameter first.
- A transfer of known bytes takes a latency and bytes / bandwidth. One of unknown bytes
  has the bytes that take its own seconds on the first workers' link, after the latency;
  if its seconds are fewer than the latency, it has no bytes and pays its seconds alone.
- Slices pay a latency each and go round the servers; segments share their slice's.
- A server sends over one link and receives over another, and so does a worker.
- A message can be received from the moment at which the receiver, at its own rate,
  would not run dry before the last byte is sent; it is then received in one piece.
- What is ready is served by priority, then by the instant at which it became ready,
  then by (step, place of the parameter in the graph, segment, worker).
- At one instant everything that ends, ends first; then every idle link and unit
  chooses. What takes 0 seconds ends at the same instant, and they choose again.
"""

import heapq
import math
from dataclasses import dataclass, field

from relaxjax.schedule import Cluster, Graph, Link, Policy


@dataclass
class Job:
    """An operation, or one segment of a transfer: sent, then received."""

    key: tuple  # (step, place, segment, worker)
    name: str
    kind: str  # "op", "pull" or "push"
    priority: float
    nbytes: float
    stages: list[tuple[str, float]]  # (link or unit, seconds): sending, receiving
    needs: list = field(default_factory=list)  # jobs
    admitted: bool = False
    ready: list[float] = field(default_factory=list)  # when each stage could begin
    begun: list[float] = field(default_factory=list)  # when each stage began
    credited: bool = False

    def ended(self, now: float, stage: int = -1) -> bool:
        stage %= len(self.stages)
        if len(self.begun) <= stage:
            return False
        return self.begun[stage] + self.stages[stage][1] <= now


def rate(link: Link) -> float:
    """Bytes per second, of which a window may pass in each round trip."""
    if link.window is None or link.latency == 0:
        return link.bandwidth
    return min(link.bandwidth, link.window / (2 * link.latency))


def size(graph: Graph, name: str, seconds: float, link: Link) -> tuple[float, float]:
    """Bytes, and the share of a latency that is paid."""
    if name in graph.nbytes:
        return graph.nbytes[name], 1.0
    if seconds < link.latency:
        return 0.0, seconds / link.latency
    return (seconds - link.latency) * rate(link), 1.0


def segments(nbytes, share, owner, policy: Policy, cluster: Cluster) -> list[tuple]:
    """(server, bytes, latencies) of each segment of one transfer."""
    slices = max(1, math.ceil(nbytes / (policy.partition_bytes or math.inf)))
    pieces = max(1, math.ceil(nbytes / slices / cluster.segment_bytes))
    return [
        ((owner + i) % cluster.servers, nbytes / slices / pieces, 0 if j else share)
        for i in range(slices)
        for j in range(pieces)
    ]


class SlowSimulator:
    """All jobs of all steps, and how they are served."""

    def __init__(self, graph: Graph, policy: Policy, cluster: Cluster, steps: int):
        assert policy.collective is None
        assert policy.queue != "random"
        assert not cluster.stragglers.varies
        self.graph, self.policy, self.cluster, self.steps = (
            graph, policy, cluster, steps,
        )  # fmt: skip
        self.kinds = [k for k in cluster.classes for _ in range(k.count)]
        self.place = {n: i for i, n in enumerate([*graph.recvs, *graph.sends])}
        for name in graph.recvs:
            self.place[name] = list(graph.recvs).index(name)
        first = cluster.classes[0].link
        self.pulls = {n: size(graph, n, t, first) for n, t in graph.recvs.items()}
        self.pushes = {n: size(graph, n, t, first) for n, (t, _) in graph.sends.items()}
        self.owner = self.placed()
        self.jobs: list[Job] = []
        self.built = [self.build(step) for step in range(steps)]
        self.now = 0.0
        self.served: dict[str, list[tuple[int, Job]]] = {}  # by link or unit
        self.directions: dict[tuple[str, int], list[Job]] = {}  # by kind, worker
        for job in self.jobs:
            self.directions.setdefault((job.kind, job.key[3]), []).append(job)
            for stage, (track, _) in enumerate(job.stages):
                self.served.setdefault(track, []).append((stage, job))
        self.spans: list[tuple] = []

    def placed(self) -> dict[str, int]:
        load = [0.0] * self.cluster.servers
        owner = {}
        weight = {n: b for n, (b, _) in (self.pushes | self.pulls).items()}
        for name in sorted(weight, key=lambda n: (-weight[n], n)):
            owner[name] = load.index(min(load))
            load[owner[name]] += weight[name]
        return owner

    def build(self, step: int) -> list[dict[str, list[Job]]]:
        """Jobs of each worker by "op x", "pull x", "push x"."""
        return [self.worker(step, w) for w in range(len(self.kinds))]

    def worker(self, step: int, w: int) -> dict[str, list[Job]]:
        graph, kind = self.graph, self.kinds[w]
        jobs: dict[str, list[Job]] = {}
        rank = {n: i for i, n in enumerate(self.policy.order)}
        server = self.cluster.server_link or self.cluster.link

        def transfer(way: str, name: str, priority: float) -> list[Job]:
            sizes = self.pulls if way == "pull" else self.pushes
            parts = segments(*sizes[name], self.owner[name], self.policy, self.cluster)
            made = []
            for i, (s, nbytes, latencies) in enumerate(parts):
                mine = latencies * kind.link.latency + nbytes / rate(kind.link)
                its = latencies * server.latency + nbytes / rate(server)
                stages = [(f"server {s} out", its), (f"worker {w} in", mine)]
                if way == "push":
                    stages = [(f"worker {w} out", mine), (f"server {s} in", its)]
                key = (step, self.place[name], i, w)
                made.append(Job(key, name, way, priority, nbytes, stages))
            return made

        for name in graph.recvs:
            by_rank = self.policy.queue == "priority"
            jobs[name] = transfer("pull", name, rank[name] if by_rank else 0)
        for i, (name, (seconds, needs)) in enumerate(graph.ops.items()):
            stage = (f"worker {w} compute", seconds / kind.speed)
            job = Job(
                (step, i, 0, w), name, "op", step * len(graph.ops) + i, 0, [stage]
            )
            job.needs = [j for need in needs for j in jobs[need]]
            jobs[name] = [job]
        pushes = {}
        for name, (_, needs) in graph.sends.items():
            by_rank = self.policy.push_queue == "priority"
            rows = transfer("push", name, rank.get(name, 0) if by_rank else 0)
            for job in rows:
                job.needs = [j for need in needs for j in jobs[need]]
            pushes[f"push {name}"] = rows
        jobs |= pushes
        self.jobs += [job for rows in jobs.values() for job in rows]
        return jobs

    def all_ended(self, jobs) -> bool:
        return all(job.ended(self.now) for job in jobs)

    def may_begin(self, step: int, w: int) -> bool:
        """Whether a worker may begin a step: after the last one, its own or all's."""
        if step == 0:
            return True
        rows = self.built[step - 1]
        rows = rows if self.policy.barrier else [rows[w]]
        return self.all_ended(j for jobs in rows for row in jobs.values() for j in row)

    def requested(self, job: Job) -> bool:
        """Whether a worker asks for a parameter: when its value is settled."""
        step = job.key[0]
        if step == 0:
            return True
        before = self.built[step - 1]
        if self.policy.barrier or job.name not in self.graph.sends:
            waits = [j for jobs in before for row in jobs.values() for j in row]
        else:
            waits = [j for jobs in before for j in jobs[f"push {job.name}"]]
        return self.all_ended(waits)

    def is_ready(self, job: Job) -> bool:
        step, _, _, w = job.key
        if job.kind == "pull":
            return self.requested(job)
        if job.needs:
            return self.all_ended(job.needs)
        return self.may_begin(step, w)

    def credit(self, job: Job) -> float:
        """What is left of a worker's credit in one direction."""
        assert self.policy.credit_bytes is not None
        latency = self.kinds[job.key[3]].link.latency
        under_way = sum(
            other.nbytes
            for other in self.directions[job.kind, job.key[3]]
            if other.admitted and not other.ended(self.now - latency)
        )
        return self.policy.credit_bytes - under_way

    def admit(self) -> None:
        """Lets the most urgent of each worker's messages pass while there is credit."""
        waiting = [j for j in self.jobs if not j.admitted and j.ready]
        for job in sorted(waiting, key=lambda j: (j.priority, j.ready[0], j.key)):
            if job.kind == "op" or self.policy.credit_bytes is None:
                job.admitted = True
            elif self.credit(job) > 0:
                same = self.directions[job.kind, job.key[3]]
                job.priority = sum(j.nbytes for j in same if j.admitted)
                job.admitted = True
                job.ready[0] = self.now

    def look(self) -> None:
        """Notes what has become ready."""
        for job in self.jobs:
            if not job.ready and self.is_ready(job):
                job.ready.append(self.now)
            if len(job.stages) == 2 and len(job.ready) == len(job.begun) == 1:
                (_, sending), (_, receiving) = job.stages
                job.ready.append(job.begun[0] + max(0.0, sending - receiving))
                self.instant(job.ready[1])

    def choose(self, track: str) -> bool:
        """Starts the next job of an idle link or unit, if there is one."""
        queue = []
        for stage, job in self.served[track]:
            if len(job.begun) > stage:
                if not job.ended(self.now, stage):
                    return False  # busy
            elif len(job.ready) > stage and job.ready[stage] <= self.now:
                priority = 0 if stage else job.priority
                if job.admitted:
                    queue.append((priority, job.ready[stage], job.key, job))
        if not queue:
            return False
        job = min(queue, key=lambda row: row[:3])[3]
        seconds = job.stages[len(job.begun)][1]
        job.begun.append(self.now)
        name = f"push {job.name}" if job.kind == "push" else job.name
        self.spans.append((track, name, self.now, self.now + seconds))
        self.instant(self.now + seconds)
        if self.policy.credit_bytes is not None and job.kind != "op":
            latency = self.kinds[job.key[3]].link.latency
            self.instant(self.now + seconds + latency)
        return True

    def instant(self, when: float) -> None:
        heapq.heappush(self.instants, when)

    def run(self) -> float:
        """Seconds until all is done."""
        self.instants = [0.0]
        while self.instants:
            self.now = heapq.heappop(self.instants)
            again = True
            while again:
                self.look()
                self.admit()
                again = any([self.choose(track) for track in self.served])
        assert self.all_ended(self.jobs), "a job was never served"
        return max((end for *_, end in self.spans), default=0.0)
