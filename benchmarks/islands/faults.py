"""A schedule of kills, freezes and other trouble, and the processes that it meets.

The same seed gives the same times and the same victims, whatever is running then. A
victim that is being started is killed as well; where none is there, the fault misses.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """What happens, and when.

    Attributes:
      at: seconds from the start.
      kind: "kill", "syncer", "freeze", or a trouble that the run knows.
      number: which process; that of the syncer is known when it happens.
    """

    at: float
    kind: str
    number: int


class Met(NamedTuple):
    """A fault as it happened.

    Attributes:
      at: the monotonic clock.
      kind: as in `Fault`.
      name: the victim, as in "island-1"; "" if there was none; for a trouble its kind.
      pid: its process; 0 if there was none.
    """

    at: float
    kind: str
    name: str
    pid: int


def schedule(
    seed: int, seconds: float, islands: int, every: dict[str, float]
) -> list[Fault]:
    """Faults of each kind, `every[kind]` seconds apart; 0: never.

    The first three kinds are moved against each other by a third of their period, so
    that two do not come at once.
    """
    draw, faults = random.Random(seed), []
    for place, (kind, period) in enumerate(every.items()):
        at = period - place % 3 * period / 3
        while period and at < seconds:
            faults.append(Fault(at, kind, draw.randrange(islands)))
            at += period
    return sorted(faults)


def processes(parent: int, variable: str) -> dict[str, int]:
    """Processes that a process has started, by what their environment says."""
    found = {}
    listed = Path(f"/proc/{parent}/task/{parent}/children")
    with suppress(OSError):
        for pid in map(int, listed.read_text().split()):
            with suppress(OSError):
                for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    name, _, value = item.decode(errors="replace").partition("=")
                    if name == variable:
                        found[value] = pid
    return found


def processes_of(carrier: str, variable: str) -> dict[str, int]:
    """Processes of this machine that have this carrier, whoever has started them.

    Of those with one name the oldest has it, and a younger one waits for its turn.
    """
    found: dict[str, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            lines = path.read_bytes().decode(errors="replace").split("\0")
            env = {k: v for k, _, v in (line.partition("=") for line in lines)}
            if env.get("RELAXJAX_CARRIER") == carrier and variable in env:
                this = _ticks(path.parent), int(path.parent.name)
                found[env[variable]] = min(found.get(env[variable], this), this)
    return {name: pid for name, (_, pid) in found.items()}


def _ticks(place: Path) -> int:
    """When a process was started: field 22 of its `stat`, behind a name in brackets."""
    return int((place / "stat").read_text().rpartition(")")[2].split()[19])


Trouble = Callable[[], Callable[[], Any]]
"""Begins, and returns what ends it."""


class Chaos:
    """Lets faults happen at their time.

    Attributes:
      met: what has happened.
    """

    def __init__(
        self,
        faults: list[Fault],
        find: Callable[[Fault], tuple[str, int]],
        lasts: float,
        troubles: Mapping[str, Trouble] | None = None,
    ):
        """Begins now.

        Args:
          faults: what is to happen.
          find: returns the name of a fault's victim, and the id of its process, which
            is 0 while it does not run.
          lasts: seconds that a freeze or a trouble lasts.
          troubles: what befalls all processes at once, by kind.
        """
        self._left, self._find, self._lasts = list(faults), find, lasts
        self._troubles, self._start = troubles or {}, time.monotonic()
        self._ends = list[tuple[float, Callable[[], Any]]]()
        self.met: list[Met] = []

    def turn(self) -> None:
        """What is due now."""
        now = time.monotonic()
        due = [end for end in self._ends if end[0] <= now]
        for at, end in due:
            self._ends.remove((at, end))
            end()
        while self._left and self._left[0].at <= now - self._start:
            self.met.append(self._happens(self._left.pop(0), now))

    def end(self) -> None:
        """Ends what lasts."""
        for _, end in self._ends:
            end()
        self._ends = []

    def _happens(self, fault: Fault, now: float) -> Met:
        if fault.kind in self._troubles:
            self._ends.append((now + self._lasts, self._troubles[fault.kind]()))
            return Met(now, fault.kind, fault.kind, os.getpid())
        name, pid = self._find(fault)
        freezes = fault.kind == "freeze"
        sent = bool(pid) and _send(pid, signal.SIGSTOP if freezes else signal.SIGKILL)
        if freezes and sent:
            wakes = partial(_send, pid, signal.SIGCONT)
            self._ends.append((now + self._lasts, wakes))
        return Met(now, fault.kind, name, pid if sent else 0)


def _send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
