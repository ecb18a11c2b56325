"""Which process is lost or stuck, judged from the signs of life that came.

    lost:  no sign of it for `lost_after` seconds
    stuck: no process in its loop has begun a step for `stuck_after` seconds, and this
           one is among those that have begun the fewest

Pure functions of times; `_watch` feeds them.

When process 0 dies, JAX's runtime aborts every other process at once, before Python can
say anything. So each process has a small child, its `Sentinel`, that reads from a pipe:
if the pipe ends without a goodbye, the child asks whether the coordinator still
answers, and says what it has found.

Cost: O(processes), and a bare Python process beside each.
"""

import os
import subprocess
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from relaxjax.hosts._addresses import endpoint
from relaxjax.hosts._members import Member


class Heard(NamedTuple):
    """The last sign of a process.

    Attributes:
      at: seconds on the listener's clock when the last sign came.
      step: the step that the process began last; -1 before the first.
      since: seconds on the same clock when `step` last changed.
    """

    at: float
    step: int
    since: float


class Patience(NamedTuple):
    """How long a watch waits.

    Attributes:
      lost_after: seconds without a sign of a process.
      stuck_after: seconds without a step.
    """

    lost_after: float
    stuck_after: float


class Signs:
    """Writes this process's signs, and keeps account of those that were read."""

    def __init__(self, processes: int):
        self._processes = processes
        self._count = 0
        self._texts: dict[int, str] = {}
        self._heard: dict[int, Heard] = {}

    def next_sign(self, step: int, flag: str) -> str:
        """This process's next sign; `flag` is "on", or "done" after the loop."""
        self._count += 1
        return f"{self._count} {step} {flag}"

    def update(self, texts: Mapping[str, str], now: float) -> dict[int, Heard]:
        """The last signs of the processes that have not left their loop.

        Args:
          texts: signs by "sign/NUMBER"; a process without one counts as heard, and as
            one that has begun no step.
          now: seconds on the listener's clock.
        """
        for i in range(self._processes):
            before = self._heard.get(i, Heard(now, -1, now))
            text = texts.get(f"sign/{i}")
            step = before.step if text is None else int(text.split()[1])
            came = text is None or text != self._texts.get(i)
            since = before.since if step == before.step else now
            self._heard[i] = Heard(now if came else before.at, step, since)
            self._texts[i] = text or ""
        gone = {i for i, text in self._texts.items() if text.endswith("done")}
        return {i: h for i, h in self._heard.items() if i not in gone}


def diagnose(
    now: float,
    heard: Mapping[int, Heard],
    members: tuple[Member, ...],
    patience: Patience,
) -> str | None:
    """What is wrong, in words; None if nothing is.

    Args:
      now: seconds on the listener's clock.
      heard: the last sign of each process that is in its loop, by number.
      members: all processes.
      patience: how long to wait.
    """
    lost = [i for i, h in heard.items() if now - h.at > patience.lost_after]
    if lost:
        return "; ".join(
            f"{members[i]} is lost: nothing was heard from it for "
            f"{patience.lost_after:g} s; {_last(heard[i].step)}"
            for i in sorted(lost)
        )
    if not heard or now - max(h.since for h in heard.values()) <= patience.stuck_after:
        return None
    left = ", ".join(str(m) for i, m in enumerate(members) if i not in heard)
    says = f"; {left} left the loop: give every process the same number of steps"
    why = says if left else ""
    least = min(h.step for h in heard.values())
    behind = sorted(i for i, h in heard.items() if h.step == least)
    if len(behind) == len(heard) > 1:
        return (
            f"all processes are stuck: they live, but none has begun a step for "
            f"{patience.stuck_after:g} s; {_last(least)}{why}"
        )
    return "; ".join(
        f"{members[i]} is stuck: it lives, but has begun no step for "
        f"{patience.stuck_after:g} s; {_last(least)}{why}"
        for i in behind
    )


def _last(step: int) -> str:
    return "no step had begun" if step < 0 else f"the last step heard of was {step}"


_PROGRAM = """
import socket, sys, time
mine, first, host, port = sys.argv[1:]
if sys.stdin.readline() != "bye\\n":
    time.sleep(0.5)
    what = "killed, or ended by a fault in native code"
    try:
        if mine != first:
            socket.create_connection((host, int(port)), 2).close()
    except OSError as error:
        what = (
            f"ended by JAX's runtime because {first}, the coordinator, is lost "
            f"({host}:{port}: {error})"
        )
    print(f"relaxjax: {mine} was {what}", file=sys.stderr, flush=True)
"""


class Sentinel:
    """Watches over this process, `mine`, until `dismiss`; `first` is process 0."""

    def __init__(self, coordinator: str, mine: Member, first: Member):
        host, port = endpoint(coordinator, "coordinator_address")
        arguments = [str(mine), str(first), host, str(port)]
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        _SENTINELS.add(self)

    def dismiss(self) -> None:
        """Says goodbye; may be called twice."""
        if self._child.stdin is None or self._child.stdin.closed:
            return
        with suppress(OSError):
            self._child.stdin.write("bye\n")
        self.let_go()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_GOODBYE)

    def let_go(self) -> None:
        """Closes the pipe, by whose end a sentinel sees that of its process."""
        if self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()


_GOODBYE = 5.0  # seconds
_SENTINELS: weakref.WeakSet[Sentinel] = weakref.WeakSet()


def _drop_in_a_fork() -> None:
    """A loader's worker, forked in the loop, may outlive the watched process."""
    for sentinel in list(_SENTINELS):
        sentinel.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_in_a_fork)
