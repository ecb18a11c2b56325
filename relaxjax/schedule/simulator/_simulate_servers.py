"""Steps with parameter servers: pulls, computation, pushes.

A server sends to its workers over one link and receives from them over another, and so
does a worker. The order of pulls is enforced by the server that sends (TicTac), each
server for the parameters that it holds; every worker asks for all its parameters as
soon as it may.

With a barrier a step starts when every worker has ended the last one and every gradient
has arrived. Without, a parameter is pulled again as soon as all workers have pushed
its gradient.

With a credit (ByteScheduler) each worker bounds what it has under way, pulls and pushes
separately; the servers then serve what they are asked for.

Ties: of transfers with the same priority that become ready at the same instant, the one
of the earlier step goes first, then by the parameter's place in the graph, then by
segment, then by worker.

Cost: O(log J) for each of J = workers * steps * (segments + operations) jobs.
"""

from relaxjax.schedule.simulator._engine import SimulatedJob, Track, Window
from relaxjax.schedule.simulator._placement import messages
from relaxjax.schedule.simulator._policies import Policy
from relaxjax.schedule.simulator._steps import Scene, StepJobs, Worker, one_ahead

Jobs = list[tuple[StepJobs, dict[str, list[SimulatedJob]]]]
"""For each worker its step, and the segments of each pull."""


class ServerSteps:
    """Builds the jobs of each step and links one step to the next."""

    def __init__(self, scene: Scene, steps: int):
        self._scene, self._steps = scene, steps
        self._graph, self._policy = scene.graph, scene.policy
        self._jobs = one_ahead(self._build)
        self._rank = scene.rank
        names = dict.fromkeys((*scene.graph.recvs, *scene.graph.sends))
        self._place = {name: i for i, name in enumerate(names)}
        self._pulled, self._pushed = messages(scene.graph, scene.policy, scene.cluster)
        self._server_link = scene.cluster.server_link or scene.cluster.link
        servers = range(scene.cluster.servers)
        self._server_out = [Track(f"server {s} out") for s in servers]
        self._server_in = [Track(f"server {s} in") for s in servers]
        self._worker_in = [Track(f"worker {w.index} in") for w in scene.workers]
        self._worker_out = [Track(f"worker {w.index} out") for w in scene.workers]
        self._pull_window = [_window(scene.policy, w) for w in scene.workers]
        self._push_window = [_window(scene.policy, w) for w in scene.workers]

    def run(self) -> None:
        """Simulates all steps."""
        self._begin(0)
        self._scene.engine.run()

    def _begin(self, step: int) -> None:
        """Begins a step of every worker: the first, and each one after a barrier."""
        for name in self._graph.recvs:
            self._request(name, step)
        for worker, (jobs, _) in zip(
            self._scene.workers, self._jobs(step), strict=True
        ):
            self._scene.begin(worker, jobs)

    def _build(self, step: int) -> Jobs:
        sends = self._graph.sends
        arrived = {name: SimulatedJob(None, name, step=step) for name in sends}
        over = SimulatedJob(None, "step", step=step)
        built = []
        for worker in self._scene.workers:
            jobs = StepJobs.of(self._graph, worker, step)
            jobs.begin.waiting += 1
            pulls = self._pulls(worker, jobs)
            ended = SimulatedJob(None, "ended")
            ended.need(jobs.end)
            for name, (_, needs) in sends.items():
                for push in self._push(worker, step, name):
                    jobs.feed(push, needs)
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
        self._scene.clock.end(worker.index, self._scene.engine.now)
        if not self._policy.barrier and step + 1 < self._steps:
            self._scene.begin(worker, self._jobs(step + 1)[worker.index][0])

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
        again = not self._policy.barrier and step + 1 < self._steps
        if again and name in self._graph.recvs:
            self._request(name, step + 1)

    def _request(self, name: str, step: int) -> None:
        """Every worker asks for a parameter; the server serves them in turns."""
        requests = [pulls[name] for _, pulls in self._jobs(step)]
        for segment in zip(*requests, strict=True):
            for pull in segment:
                self._scene.engine.count_down(pull)

    def _pulls(self, worker: Worker, jobs: StepJobs) -> dict[str, list[SimulatedJob]]:
        names = list(self._graph.recvs)
        if self._policy.queue == "random":
            self._scene.rng.shuffle(names)
        ahead = [0.0] * len(self._server_out)
        return {name: self._pull(worker, jobs, name, ahead) for name in names}

    def _pull(
        self, worker: Worker, jobs: StepJobs, name: str, ahead: list[float]
    ) -> list[SimulatedJob]:
        """The segments of a pull; each waits for its request.

        Without an order, a segment's priority is the number of bytes `ahead` of it in
        its worker's own order: a server shares its link fairly among the workers.
        """
        random = self._policy.queue == "random"
        rank = self._rank[name] if self._policy.queue == "priority" else 0
        step, pulls = jobs.begin.step, []
        for i, (server, nbytes, latencies) in enumerate(self._pulled[name]):
            pull = SimulatedJob(
                self._server_out[server],
                name,
                worker.weight * self._server_link.seconds(nbytes, latencies),
                priority=ahead[server] if random else rank,
                place=(step, self._place[name], i, worker.index),
                nbytes=nbytes,
                worker=worker.index,
                step=step,
                receiver=self._worker_in[worker.index],
                receiving=worker.kind.link.seconds(nbytes, latencies),
                window=self._pull_window[worker.index],
            )
            pull.waiting = 1
            ahead[server] += nbytes
            jobs.recvs[name].need(pull)
            pulls.append(pull)
        return pulls

    def _push(self, worker: Worker, step: int, name: str) -> list[SimulatedJob]:
        by_priority = self._policy.push_queue == "priority"
        return [
            SimulatedJob(
                self._worker_out[worker.index],
                f"push {name}",
                worker.kind.link.seconds(nbytes, latencies),
                priority=self._rank.get(name, 0) if by_priority else 0,
                place=(step, self._place[name], i, worker.index),
                nbytes=nbytes,
                worker=worker.index,
                step=step,
                receiver=self._server_in[server],
                receiving=worker.weight * self._server_link.seconds(nbytes, latencies),
                window=self._push_window[worker.index],
            )
            for i, (server, nbytes, latencies) in enumerate(self._pushed[name])
        ]


def _window(policy: Policy, worker: Worker) -> Window | None:
    if policy.credit_bytes is None:
        return None
    return Window(policy.credit_bytes, worker.kind.link.latency)
