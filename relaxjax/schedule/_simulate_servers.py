"""Steps with parameter servers: pulls, computation, pushes.

A server sends to its workers over one link and receives from them over another, and so
does a worker. The order of pulls is kept by the server that sends (TicTac), each
server for the parameters that it holds; every worker asks for all its parameters as
soon as it may.

With a barrier a step starts when every worker has ended the last and every gradient
has arrived. Without, a parameter is pulled again as soon as all workers have pushed
its gradient.

With a credit (ByteScheduler) each worker bounds what it has under way, pulls and
pushes apart; the servers then serve what they are asked for.

Cost: O(log J) for each of J = workers * steps * (segments + operations) jobs.
"""

from relaxjax.schedule._engine import SimulatedJob, Track, Window
from relaxjax.schedule._placement import messages
from relaxjax.schedule._policies import Policy
from relaxjax.schedule._steps import (
    Scene,
    Step,
    make_step,
    one_ahead,
)
from relaxjax.schedule._workers import Worker

Jobs = list[tuple[Step, dict[str, list[SimulatedJob]]]]
"""For each worker its step, and the segments of each pull."""


class ServerSteps:
    """Builds the jobs of each step and links one step to the next.

    Args:
        scene: what is simulated.
        steps: how many steps.
    """

    def __init__(self, scene: Scene, steps: int):
        self._scene, self._steps = scene, steps
        self._graph, self._policy = scene.graph, scene.policy
        self._jobs = one_ahead(self._build)
        self._rank = scene.rank
        self._messages = messages(scene.graph, scene.policy, scene.cluster)
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
        """Every worker at once: the first step, and each step after a barrier."""
        for name in self._graph.recvs:
            self._request(name, step)
        for worker, (jobs, _) in zip(
            self._scene.workers, self._jobs(step), strict=True
        ):
            self._scene.begin(worker, jobs)

    def _build(self, step: int) -> Jobs:
        arrived = {
            name: SimulatedJob(None, name, step=step) for name in self._graph.sends
        }
        over = SimulatedJob(None, "step", step=step)
        built = []
        for worker in self._scene.workers:
            jobs = make_step(self._graph, worker, step)
            jobs.begin.waiting += 1
            pulls = self._pulls(worker, jobs)
            ended = SimulatedJob(None, "ended")
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
        known = name in self._graph.recvs
        if known and not self._policy.barrier and step + 1 < self._steps:
            self._request(name, step + 1)

    def _request(self, name: str, step: int) -> None:
        """Every worker asks for a parameter; they are served in turns."""
        requests = [pulls[name] for _, pulls in self._jobs(step)]
        for segment in zip(*requests, strict=True):
            for pull in segment:
                self._scene.engine.met(pull)

    def _pulls(self, worker: Worker, jobs: Step) -> dict[str, list[SimulatedJob]]:
        names = list(self._graph.recvs)
        if self._policy.queue == "random":
            self._scene.rng.shuffle(names)
        ahead = [0.0] * len(self._server_out)
        return {name: self._pull(worker, jobs, name, ahead) for name in names}

    def _pull(
        self, worker: Worker, jobs: Step, name: str, ahead: list[float]
    ) -> list[SimulatedJob]:
        """The segments of a pull; each waits for its request.

        Without an order, a segment's priority is the bytes `ahead` of it in its
        worker's own order: a server shares its link fairly among the workers.
        """
        pulls = []
        for server, nbytes, latencies in self._messages[name]:
            pull = SimulatedJob(
                self._server_out[server],
                name,
                worker.weight * self._server_link.seconds(nbytes, latencies),
                priority=ahead[server]
                if self._policy.queue == "random"
                else self._rank.get(name, 0),
                nbytes=nbytes,
                worker=worker.index,
                step=jobs.begin.step,
            )
            pull.window = self._pull_window[worker.index]
            pull.receiver = self._worker_in[worker.index]
            pull.receiving = worker.kind.link.seconds(nbytes, latencies)
            pull.waiting = 1
            ahead[server] += nbytes
            jobs.recvs[name].need(pull)
            pulls.append(pull)
        return pulls

    def _push(self, worker: Worker, step: int, name: str) -> list[SimulatedJob]:
        by_priority = self._policy.push_queue == "priority"
        pushes = []
        for server, nbytes, latencies in self._messages[name]:
            push = SimulatedJob(
                self._worker_out[worker.index],
                f"push {name}",
                worker.kind.link.seconds(nbytes, latencies),
                priority=self._rank.get(name, 0) if by_priority else 0,
                nbytes=nbytes,
                worker=worker.index,
                step=step,
            )
            push.window = self._push_window[worker.index]
            push.receiver = self._server_in[server]
            push.receiving = worker.weight * self._server_link.seconds(
                nbytes, latencies
            )
            pushes.append(push)
        return pushes


def _window(policy: Policy, worker: Worker) -> Window | None:
    if policy.credit_bytes is None:
        return None
    return Window(policy.credit_bytes, worker.kind.link.latency)
