"""One island's name, and the processes that have it one after the other."""

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import IO, NamedTuple

from relaxjax.islands.common._names import NAME, STARTED
from relaxjax.islands.started._members_of import drawn

SECONDS_TO_END = 5.0  # from SIGTERM to SIGKILL
_SOON = 20.0  # seconds from a start to an end that counts as soon
_TRIES = 5
_BY_OTHERS = {
    0,
    *(-x for x in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
}
"""Ends that are no failure of the program; JAX itself ends by SIGABRT."""
_PAUSE = 0.2  # seconds after the first failure; 4 and 9 times as long after the next
_SPARE_AFTER = 3.0  # seconds from a start to that of the next spare process


class Running(NamedTuple):
    """A process, the thread that passes its output on, and the word that it has."""

    process: subprocess.Popen[str]
    reader: Thread
    word: str


class Place:
    """One island's name, and the process that has it now.

    Attributes:
      name: the island's name.
      process: the process; None once the island is done or given up.
      starts: number of processes so far.
      status: of the last process that has ended.
      word: that of the process, or of the last one.
      unread: whether the reader of what is printed has gone.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        spares: bool = False,
    ):
        self.name, self._command, self._spares = name, command, spares
        self._env = {**env, NAME: name}
        self._due: float | None = None
        self._spare: Running | None = None
        self.process: subprocess.Popen[str] | None = None
        self.unread = False
        self.starts = self.status = self._failures = 0
        self.start()

    def start(self) -> None:
        """Starts a process, or lets the spare one run."""
        self._due = None
        if self._spare is None or self._spare.process.poll() is not None:
            self.dismiss()
            self._spare = self._started()
        (self.process, self._reader, self.word), self._spare = self._spare, None
        self.starts, self._since = self.starts + 1, time.monotonic()
        if self.process.stdin is not None:
            with suppress(BrokenPipeError), self.process.stdin as waits:
                waits.write("\n")

    def stand_by(self) -> None:
        """Starts a spare process, if one is wanted and the island has begun."""
        begun = self.process and time.monotonic() - self._since > _SPARE_AFTER
        if self._spares and self._spare is None and begun:
            self._spare = self._started()

    def dismiss(self) -> None:
        """Ends the spare process."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.process.kill()
            spare.reader.join(SECONDS_TO_END)
            if spare.process.stdin is not None:
                spare.process.stdin.close()
            spare.process.wait()

    def _started(self) -> Running:
        word = drawn(self._env.get(STARTED, ""))
        process = subprocess.Popen(
            self._command,
            env={**self._env, STARTED: word},
            stdin=subprocess.PIPE if self._spares else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        reader = Thread(target=self._pass_on, args=(process.stdout,), daemon=True)
        reader.start()
        return Running(process, reader, word)

    def ended(self) -> str | None:
        """How the process has ended, in words; None while it runs."""
        if self.process is None or self.process.poll() is None:
            return None
        self._reader.join(SECONDS_TO_END)
        self.status = code = self.process.returncode
        pid, self.process = self.process.pid, None
        soon = time.monotonic() - self._since < _SOON
        failed = soon and code not in _BY_OTHERS
        self._failures = self._failures + 1 if failed else 0
        how = f"status {code}" if code >= 0 else signal.Signals(-code).name
        return f"{self.name} (process {pid}) ended by {how}"

    def may_start(self) -> bool:
        """Whether another process should try."""
        return self._failures < _TRIES

    def start_later(self) -> None:
        """Lets some seconds pass first, after failures."""
        self._due = time.monotonic() + self._failures**2 * _PAUSE

    def start_if_due(self) -> None:
        """Starts a process, if it is time for that."""
        if self._due is not None and time.monotonic() >= self._due:
            self.start()

    @property
    def is_open(self) -> bool:
        """Whether a process runs, or will be started."""
        return self.process is not None or self._due is not None

    def send(self, number: int) -> None:
        """Sends a signal to the process, if it runs, and to the spare one."""
        spare = self._spare and self._spare.process
        for process in (self.process, spare):
            if process is not None:
                with suppress(ProcessLookupError):
                    process.send_signal(number)

    def _pass_on(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                if self.unread:
                    continue
                try:
                    print(f"[{self.name}] {line.rstrip()}", flush=True)
                except BrokenPipeError:
                    self.unread = True
