"""The processes of a job: started, read line by line, and ended together.

Cost: a thread for each stream of each process.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import IO, NamedTuple

_POLL = 0.05
_KILL_AFTER = 5.0  # seconds from SIGTERM to SIGKILL
_UNREAD = 128 + signal.SIGPIPE  # as in a shell

Say = Callable[[int, str, str], None]


class Ended(NamedTuple):
    """How a job ended.

    Attributes:
      status: 0 if every process ended well, also after SIGTERM; 130 if so after a
        Ctrl-C; else the status of the first that did not, as in a shell (128 + the
        signal's number).
      why: how the first process that failed has ended, or that there was a Ctrl-C, in
        words; empty where the status is 0, or where all were ended because nobody
        reads what they print (status 141).
    """

    status: int
    why: str


class Crew:
    """The processes of a job.

    Attributes:
      signals: numbers of the signals that were passed on, in order of arrival.
      unread: whether the reader of what is printed has gone.
    """

    def __init__(self, say: Say):
        self._say = say
        self.unread = False
        self.signals: list[int] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[Thread] = []

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Starts one more process, with `env` as its whole environment."""
        number = len(self._processes)
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._processes.append(process)
        for arrived in self.signals[:1]:  # while the processes are being started
            process.send_signal(arrived)
        for name in ("stdout", "stderr"):
            args = number, name, getattr(process, name)
            reader = Thread(target=self._pass_on, args=args, daemon=True)
            reader.start()
            self._readers.append(reader)

    def send(self, number: int) -> None:
        """Sends a signal to every process that still runs."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(number)

    def wait(self, grace: float) -> Ended:
        """Waits for all; when one has failed, ends the others after `grace` seconds."""
        ended, until = Ended(0, ""), float("inf")
        while any(process.poll() is None for process in self._processes):
            if not ended.status and self.unread:
                ended, until = Ended(_UNREAD, ""), 0.0
            elif not ended.status and (failed := self._failed()):
                ended, until = failed, time.monotonic() + grace
            if time.monotonic() > until:
                self.send(signal.SIGTERM)
                until = float("inf")
                Thread(target=self._kill_later, daemon=True).start()
            time.sleep(_POLL)
        for reader in self._readers:
            reader.join(_KILL_AFTER)
        if self.unread:
            return Ended(_UNREAD, "")
        return ended if ended.status else self._failed() or ended

    def kill(self) -> None:
        """Ends the processes that still run, at once."""
        self.send(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _kill_later(self) -> None:
        time.sleep(_KILL_AFTER)
        self.send(signal.SIGKILL)

    def _failed(self) -> Ended | None:
        """The first that failed; one that was killed before those it took along."""
        ends = [(i, p) for i, p in enumerate(self._processes) if p.poll()]
        for i, process in sorted(ends, key=lambda pair: pair[1].returncode != -9):
            code, who = process.returncode, f"process {i} (pid {process.pid})"
            if code < 0:
                return Ended(128 - code, f"{who} ended by {signal.Signals(-code).name}")
            return Ended(code, f"{who} ended with status {code}")
        return None

    def _pass_on(self, number: int, name: str, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                if self.unread:
                    continue
                try:
                    self._say(number, name, line.rstrip("\n"))
                except BrokenPipeError:
                    self.unread = True
