"""Watches the processes of a job while they train, so that none is lost unnoticed.

Each process posts a sign of life and its step a few times a second, from a thread of
its own, and reads those of the others. The first to see that one is lost or stuck posts
its diagnosis. All adopt it: as an exception where Python still runs, and by ending the
process where its main thread waits in a collective forever. A signal to one process
stops all of them before the same step.

Cost: two round trips to process 0 every `interval`; nothing in the step.
"""

import itertools
import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from relaxjax.hosts._diagnosis import Patience, Sentinel, Signs, diagnose
from relaxjax.hosts._interrupt import heard, installed
from relaxjax.hosts._join import WATCH, Hosts
from relaxjax.hosts._stop import Stop

STATUS = 70  # exit status of a process that is ended: EX_SOFTWARE of sysexits.h

_GRACE = 3.0  # seconds for the main thread to leave by itself
_LAST = 2.0  # seconds more for process 0, whose end aborts the others
_SOON = 0.1  # of the interval, while processes agree on where to stop
_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
_ENTERED = itertools.count()  # in this program: all processes enter as many
_BROKEN = re.compile("gloo|nccl|collective|unavailable|socket|connection", re.I)


class LostProcess(RuntimeError):
    """Another process is lost, stuck or has failed; the message names it."""


class Watch:
    """Watches all processes of a job, inside its `with` block.

    In the loop, `stops_before(step)` marks each step and says whether to stop; Ctrl-C
    and SIGTERM, to any process, ask for that (a second one interrupts at once). Put it
    around `relaxjax.init` too, which is the first to wait for all.

    A process that the loss of another leaves in a collective forever ends with status
    70 within `lost_after` (or `stuck_after`) and some 5 seconds, after a line on
    standard error; where Python still runs, `LostProcess` is raised.

    Args:
      hosts: the processes, from `join`.
      lost_after: seconds without a sign after which a process counts as lost.
      stuck_after: seconds without a step, on any process, after which those that are
        behind count as stuck. Compilation is part of the first step.
      interval: seconds between two signs.

    Raises:
      ValueError: times that are not positive, or `lost_after` below four intervals.

    Example:
      >>> from relaxjax import hosts
      >>> with hosts.Watch(hosts.join(), stuck_after=600) as watch:
      ...     for step in range(3):
      ...         if watch.stops_before(step):
      ...             break  # and save
      >>> step
      2
    """

    def __init__(
        self,
        hosts: Hosts,
        *,
        lost_after: float = 15.0,
        stuck_after: float = 300.0,
        interval: float = 0.5,
    ):
        _check(lost_after, stuck_after, interval)
        self._hosts = hosts
        self._mine = hosts.members[hosts.process_id]
        self._patience = Patience(lost_after, stuck_after)
        self._interval = interval
        self._signs, self._number = Signs(len(hosts.members)), 0
        self._stop = Stop(hosts)
        self._posted = 0.0  # when process 0 answered last
        self._diagnosis: str | None = None
        self._diagnosed, self._left = threading.Event(), threading.Event()
        self._handlers: dict[int, Any] = {}
        self._sentinel: Sentinel | None = None

    def __enter__(self) -> "Watch":
        if (at := self._hosts.coordinator_address) is not None:
            self._sentinel = Sentinel(at, self._mine, self._hosts.members[0])
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._handlers[number] = signal.signal(number, self._hear)
        self._posted, self._number = time.monotonic(), next(_ENTERED)
        self._stop.under = f"{WATCH}/{self._number}"
        self._talking = threading.Thread(target=self._talk, daemon=True)
        self._talking.start()
        threading.Thread(target=self._guard, daemon=True).start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if broken := _broken(error):
            self._diagnosed.wait(self._patience.lost_after + 4 * self._interval)
        elif error and not (self._stop.stopped or isinstance(error, LostProcess)):
            self._adopt(f"{self._mine} has failed: {kind.__name__}: {error}")
        self._left.set()
        self._talking.join(_GRACE)  # what it still posts would stand after this
        with suppress(Exception):  # process 0 may be gone
            self._post("done")
        if self._sentinel:
            self._sentinel.dismiss()
        if broken and self._diagnosis:
            raise LostProcess(self._diagnosis) from error

    def stops_before(self, step: int) -> bool:
        """Whether all are to stop before a step; if not, the step counts as begun.

        Args:
          step: the number of the step, 0 or more; all processes must call this for the
            same steps.

        Raises:
          LostProcess: another process is lost, stuck or has failed.
        """
        stops = self._stop.before(step, self._diagnosed)
        if self._diagnosis:
            raise LostProcess(self._diagnosis)
        return stops

    def _hear(self, number: int, _: Any) -> None:
        fresh = self._stop.ask(f"{_SIGNALS[signal.Signals(number)]} at {self._mine}")
        heard()
        if not fresh and not installed():
            raise KeyboardInterrupt

    def _talk(self) -> None:
        """Posts and reads signs until the end, or until process 0 is gone."""
        with suppress(Exception):  # what JAX raises then has no type of its own
            while not (self._left.is_set() or self._diagnosed.is_set()):
                self._post("on")
                texts = self._of_this_watch(self._hosts.board.read(WATCH))
                self._posted = time.monotonic()
                heard = self._signs.update(texts, self._posted)
                self._stop.agree(texts)
                members = self._hosts.members
                wrong = diagnose(self._posted, heard, members, self._patience)
                if wrong or "diagnosis" in texts:
                    self._adopt(wrong or texts["diagnosis"])
                pause = _SOON if self._stop.asked else 1
                self._left.wait(pause * self._interval)

    def _post(self, flag: str) -> None:
        text = f"{self._signs.next_sign(self._stop.step, flag)} {self._number}"
        self._hosts.board.put(f"{WATCH}/sign/{self._hosts.process_id}", text)

    def _of_this_watch(self, texts: dict[str, str]) -> dict[str, str]:
        """What was read of this watch, and who is in a later one: it has left this one.

        Another watch's question, answers and diagnosis are not this one's.
        """
        own = f"{self._number}/"
        found = {
            key.removeprefix(own): text
            for key, text in texts.items()
            if key.startswith((own, "sign/"))
        }
        for key in (key for key in texts if key.startswith("sign/")):
            sign, _, number = texts[key].rpartition(" ")
            found[key] = sign
            if int(number) > self._number:
                found[key] = f"{sign.split()[0]} -1 done"
            elif int(number) < self._number:
                del found[key]
        return found

    def _adopt(self, diagnosis: str) -> None:
        """Posts a diagnosis, or adopts the one that was posted first."""
        self._diagnosis, key = diagnosis, f"{self._stop.under}/diagnosis"
        with suppress(Exception):
            self._diagnosis = self._hosts.board.put_if_absent(key, diagnosis)
        self._diagnosed.set()

    def _guard(self) -> None:
        """Ends the process when its main thread does not."""
        patience = self._patience.lost_after
        while not self._diagnosed.wait(self._interval):
            if self._left.is_set():
                return
            if time.monotonic() - self._posted > patience:
                first = self._hosts.members[0]
                self._diagnosis = (
                    f"{first}, the coordinator, is lost: it has not answered for "
                    f"{patience:g} s"
                )
                self._diagnosed.set()
        if self._left.wait(_GRACE + (0 if self._hosts.process_id else _LAST)):
            return
        print(f"relaxjax: {self._mine} ends: {self._diagnosis}", file=sys.stderr)
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        if self._sentinel:
            self._sentinel.dismiss()
        os._exit(STATUS)


def _broken(error: BaseException | None) -> bool:
    """Whether the end of another process may have caused an error."""
    of_jax = isinstance(error, ValueError | RuntimeError)
    lost = isinstance(error, LostProcess)
    return of_jax and not lost and _BROKEN.search(str(error)) is not None


def _check(lost_after: float, stuck_after: float, interval: float) -> None:
    times = {"lost_after": lost_after, "stuck_after": stuck_after, "interval": interval}
    for name, seconds in times.items():
        if not seconds > 0:
            raise ValueError(f"Watch: {name}={seconds}; it must be more than 0 seconds")
    if lost_after < 4 * interval:
        raise ValueError(
            f"Watch: lost_after={lost_after} is less than four times "
            f"interval={interval}: a slow sign would count as a loss"
        )
