"""Hosts of the network bench, with the processes of every system on them.

Hosts are network namespaces with shaped links (`relaxjax.hosts.Namespaces`); without
root or iproute2 they are processes over loopback, at no set rate. Every host
has a process of each system, with one compute thread for each of its devices; only one
system's processes compute at a time.
"""

import random
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.network.methods import Method
from benchmarks.network.problem import ROWS, Shape, problem, task
from benchmarks.network.worker_processes import WorkerProcesses
from relaxjax.hosts import Loopback, Namespaces, Place

STEPS, BUDGET = 5, 6.0  # of a block, at most: timed steps, and seconds
_FAST = 1.25e9  # bytes per second, of links that are not shaped yet
_DRAWN = 512  # batches, before the first comes again
Row = dict[str, Any]


class Lab:
    """Hosts, and the processes of every system on them.

    Args:
      methods: the methods that will be run; each is begun.
      shape: model and hosts.
      steps: steps of a training, for methods with phases.
      rows: rows of each process, in each step.
      windows: windows that are held out; None: one of each host.
    """

    def __init__(
        self,
        methods: Sequence[Method],
        shape: Shape,
        *,
        steps: int,
        rows: int = ROWS,
        windows: int | None = None,
    ):
        self._stack = ExitStack()
        self.namespaces = None if Namespaces.missing() else Namespaces(_FAST)
        links = self.namespaces or Loopback()
        self.crews: dict[str, WorkerProcesses] = {}
        self.places: list[Place] = []
        try:
            self._stack.enter_context(_stoppable())
            self._stack.callback(links.close)
            places = links.open([str(i) for i in range(shape.hosts)])
            self.places = list(places.values())
            folder = self._stack.enter_context(tempfile.TemporaryDirectory())
            path, n = Path(folder) / "problem.npz", shape.hosts
            self._problem = path
            start = task(shape.width, shape.layers)
            drawn = problem(
                start, processes=n, steps=_DRAWN, windows=windows or n, rows=rows
            )
            drawn.save(path)
            for method in methods:
                self._begin(method, steps)
        except BaseException:
            self.close()
            raise

    def _begin(self, method: Method, steps: int) -> None:
        crew = self.crew(method.system)
        crew.begin(method.label, method.plain(steps=steps))
        crew.steps(method.label, 3)  # compiles, and DDP makes its bucket anew
        print(f"begun: {method.label}", flush=True)

    def crew(self, system: str) -> WorkerProcesses:
        """The processes of a system, started where it has none yet."""
        if system not in self.crews:
            crew = WorkerProcesses(system, self.places, self._problem)
            self.crews[system] = self._stack.enter_context(crew)
        return self.crews[system]

    def shape(self, mbit: float) -> None:
        """Sets the rate of every link, in Mbit/s."""
        if self.namespaces is not None:
            self.namespaces.shape(mbit * 1e6 / 8)

    def sent(self) -> list[int]:
        """Bytes that each host has sent so far; zeros where nothing counts them."""
        if self.namespaces is None:
            return [0] * len(self.places)
        return self.namespaces.sent()

    def block(self, method: Method, *, steps: int, budget: float) -> Row:
        """Times a block: at most so many steps or seconds, or one period."""
        crew, before = self.crews[method.system], self.sent()
        first = crew.steps(method.label, 1)
        if method.period == 1:
            count = max(1, min(steps, int(budget / max(first.seconds, 1e-3))))
        else:
            count = method.period * max(1, steps // method.period)
        block = crew.steps(method.label, count)
        sent = [b - a for a, b in zip(before, self.sent(), strict=True)]
        return {
            "method": method.label,
            "seconds": block.seconds,
            "busy": block.busy,
            "steps": count,
            "sent": max(sent) / (count + 1),
        }

    def rounds(
        self,
        methods: Sequence[Method],
        rates: Sequence[float],
        rounds: int,
        rng: random.Random,
    ) -> Iterator[Row]:
        """At each rate so many rounds: a block of each method, in random order."""
        for rate in rates if self.namespaces else (0.0,):
            self.shape(rate)
            for number in range(rounds):
                for method in rng.sample(methods, len(methods)):
                    block = self.block(method, steps=STEPS, budget=BUDGET)
                    row = {"rate": rate, "round": number, **block}
                    print(row, flush=True)
                    yield row

    def __enter__(self) -> "Lab":
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()

    def close(self) -> None:
        """Ends the processes and removes the hosts."""
        self._stack.close()


@contextmanager
def _stoppable() -> Iterator[None]:
    """Makes SIGTERM an exception, as Ctrl-C is, so that everything is cleaned up."""

    def stop(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
