"""The processes of one system of the network bench, asked together.

Each process stands in its host's place, and is one worker, or two in `PAIRS`. All get
an order at once, and answer when they have carried it out; between orders they wait for
a line.

Cost: a process for each host, and a copy of every method's state in each.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

from benchmarks.network.methods import DDP, PAIRS, RELAXJAX
from relaxjax._core.foreign._huge_pages import huge_pages
from relaxjax.hosts import Place

MODULES = {
    RELAXJAX: "benchmarks.network.jax_worker",
    PAIRS: "benchmarks.network.jax_worker",
    DDP: "benchmarks.network.torch_worker",
}
_PORTS = dict(zip(MODULES, range(29400, 29700, 100), strict=True))  # in namespaces
_PATIENCE = 1200.0
_LAST = 2000  # characters of a process's stderr in an error
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NPROC": "2",
    "JAX_PLATFORMS": "cpu",
}
_TWO_DEVICES = {
    "XLA_FLAGS": f"{_ONE_THREAD['XLA_FLAGS']} --xla_force_host_platform_device_count=2",
    "NPROC": "4",
}


class StepBlock(NamedTuple):
    """What some steps took.

    Attributes:
      seconds: seconds of one step, the mean over steps and processes.
      busy: processor seconds of one step and process.
      losses: losses of the steps, each the mean over processes.
      each: seconds of each step, in the first process.
    """

    seconds: float
    busy: float
    losses: list[float]
    each: list[float]


class WorkerProcesses:
    """A system's processes, running.

    Args:
      system: a key of `MODULES`.
      places: the places of the hosts, in order.
      problem: the file of the problem.

    Raises:
      RuntimeError: a process ended or did not answer; with the end of its stderr.
    """

    def __init__(self, system: str, places: Sequence[Place], problem: Path):
        self.system = system
        self._processes: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self._folder = Path(folder)
        try:
            address = _address(places[0], _PORTS[system])
            for number, place in enumerate(places):
                arguments = [str(problem), str(number), str(len(places)), address]
                self._start(place, [MODULES[system], *arguments])
            self._answers()
        except BaseException:
            self.close()
            raise

    def begin(self, name: str, method: Mapping[str, Any]) -> None:
        """Sets a method up, at the start, under a name; see `Method.plain`."""
        self._ask({"do": "begin", "name": name, "method": dict(method)})

    def take_over(self, name: str, method: Mapping[str, Any]) -> None:
        """Goes on with another method; see `relaxjax.plan.taken_over`."""
        self._ask({"do": "take over", "name": name, "method": dict(method)})

    def end(self, name: str) -> None:
        """Forgets a method and its state."""
        self._ask({"do": "end", "name": name})

    def steps(self, name: str, count: int, *, warm: int = 0) -> StepBlock:
        """Takes steps with a method, of which the first `warm` are not timed."""
        order = {"do": "steps", "name": name, "count": count, "warm": warm}
        answers = self._ask(order)
        timed = count - warm
        return StepBlock(
            _mean([sum(answer["seconds"]) for answer in answers]) / max(timed, 1),
            _mean([answer["busy"] for answer in answers]) / max(timed, 1),
            [
                _mean(losses)
                for losses in zip(*(a["losses"] for a in answers), strict=True)
            ],
            answers[0]["seconds"],
        )

    def loss(self, name: str) -> float:
        """The held-out loss, the mean over processes, each with its own model."""
        return _mean([a["loss"] for a in self._ask({"do": "loss", "name": name})])

    def pids(self) -> list[int]:
        """The ids of the processes, in order of the hosts."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        """Ends the processes; may be called twice."""
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            with process:  # closes its pipes, and waits
                pass
        self._stack.close()

    def __enter__(self) -> "WorkerProcesses":
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the processes."""
        self.close()

    def _start(self, place: Place, arguments: list[str]) -> None:
        stderr = self._folder / f"{len(self._processes)}.txt"
        command = [sys.executable, "-u", "-m", *arguments]
        if place.namespace is not None:
            command = ["ip", "netns", "exec", place.namespace, *command]
        devices = _TWO_DEVICES if self.system == PAIRS else {}
        with stderr.open("w") as file:
            process = subprocess.Popen(
                command,
                env={**huge_pages(os.environ), **os.environ, **_ONE_THREAD, **devices},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self._processes.append(process)

    def _ask(self, order: Mapping[str, Any]) -> list[dict[str, Any]]:
        for process in self._processes:
            assert process.stdin is not None
            print(json.dumps(order), file=process.stdin, flush=True)
        return self._answers()

    def _answers(self) -> list[dict[str, Any]]:
        timer = Timer(_PATIENCE, self._kill)
        timer.start()
        try:
            return [self._answer(i) for i in range(len(self._processes))]
        finally:
            timer.cancel()

    def _answer(self, number: int) -> dict[str, Any]:
        stream = self._processes[number].stdout
        assert stream is not None
        if line := stream.readline():
            return json.loads(line)
        last = (self._folder / f"{number}.txt").read_text()[-_LAST:]
        raise RuntimeError(f"{self.system}: process {number} has ended:\n{last}")

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()


def _address(place: Place, port: int) -> str:
    """The address of the first process; in a namespace nothing else listens."""
    if place.namespace is not None:
        return f"{place.address}:{port}"
    with socket.socket() as free:
        free.bind((place.address, 0))
        return f"{place.address}:{free.getsockname()[1]}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
