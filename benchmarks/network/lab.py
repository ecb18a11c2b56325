"""Hosts of the network bench, with the processes of every system on them.

Hosts are network namespaces with shaped links (`relaxjax.hosts.Namespaces`), without
root or iproute2 processes over loopback, of whose links no rate can be set. Every host
has a process of each system, with one compute thread for each of its devices; only one
system's processes compute at a time.
"""

import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.network.curves import RATE
from benchmarks.network.methods import Method
from benchmarks.network.problem import problem, task
from benchmarks.network.worker_processes import Crew
from relaxjax.hosts import Loopback, Namespaces, Place

STEPS, BUDGET = 5, 6.0  # of a block, at most: timed steps, and seconds
_FAST = 1.25e9  # bytes per second, of links that are not shaped yet
_DRAWN = 512  # batches, before the first comes again
Row = dict[str, Any]


class Lab:
    """Hosts, and the processes of every system on them.

    Args:
      methods: that will be run; each is begun.
      width: of the model.
      layers: of the model.
      hosts: how many.
      steps: of a training, for methods with phases.
    """

    def __init__(
        self,
        methods: Sequence[Method],
        *,
        width: int,
        layers: int,
        hosts: int,
        steps: int,
    ):
        self._stack = ExitStack()
        self.namespaces = None if Namespaces.missing() else Namespaces(_FAST)
        links = self.namespaces or Loopback()
        self.crews: dict[str, Crew] = {}
        self.places: list[Place] = []
        try:
            self._stack.enter_context(_stoppable())
            self._stack.callback(links.close)
            self.places = list(links.open([str(i) for i in range(hosts)]).values())
            folder = self._stack.enter_context(tempfile.TemporaryDirectory())
            path = Path(folder) / "problem.npz"
            drawn = problem(
                task(width, layers), processes=hosts, steps=_DRAWN, windows=hosts
            )
            drawn.save(path)
            for method in methods:
                self._begin(method, path, steps)
        except BaseException:
            self.close()
            raise

    def _begin(self, method: Method, path: Path, steps: int) -> None:
        if method.system not in self.crews:
            crew = Crew(method.system, self.places, path)
            self.crews[method.system] = crew
            self._stack.callback(crew.close)
        crew = self.crews[method.system]
        crew.begin(method.label, method.plain(rate=RATE, steps=steps))
        crew.steps(method.label, 3)  # compiles, and DDP makes its bucket anew
        print(f"begun: {method.label}", flush=True)

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
        """Times a block.

        Args:
          method: which.
          steps: at most so many, or a period.
          budget: seconds, from which one step may depart.
        """
        crew, before = self.crews[method.system], self.sent()
        first = crew.steps(method.label, 1)
        count = steps
        if method.period == 1:
            count = max(1, min(steps, int(budget / max(first.seconds, 1e-3))))
        else:
            count = method.period * max(1, steps // method.period)
        found = crew.steps(method.label, count)
        sent = [b - a for a, b in zip(before, self.sent(), strict=True)]
        return {
            "method": method.label,
            "seconds": found.seconds,
            "busy": found.busy,
            "steps": count,
            "sent": max(sent) / (count + 1),
        }

    def __enter__(self) -> "Lab":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()

    def close(self) -> None:
        """Ends the processes and removes the hosts."""
        self._stack.close()


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM is an exception, as Ctrl-C is: what was made is taken away."""

    def stop(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
