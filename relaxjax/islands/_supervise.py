"""Processes of one machine, an island each: started, watched, and started again.

Who ends with status 0 is done. Any other end is a failure: the island is marked as
left, so that nobody waits for it, and a new process takes its name. One that fails
several times in a row, soon after its start, is given up. With `spares`, a process that
has imported JAX stands by for each island (`_spare`).
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import IO, Any, NamedTuple

from relaxjax import hosts
from relaxjax.islands import _members as members
from relaxjax.islands._join import CARRIER, NAME, open_store
from relaxjax.islands._spare import waiting

_POLL = 0.05
_SOON = 20.0  # seconds from a start to an end that counts as soon
_TRIES = 5
_PAUSE = 0.2  # seconds after the first failure; 4 and 9 times as long after the next
_TO_END = 5.0  # seconds from SIGTERM to SIGKILL
_SPARE_AFTER = 3.0  # seconds from a start to that of the next spare process


class Running(NamedTuple):
    """A process, and the thread that passes its output on."""

    process: subprocess.Popen[str]
    reader: Thread


class Place:
    """One island's name, and the process that has it now.

    Attributes:
      name: the island's name.
      process: the process; None once the island is done or given up.
      starts: number of processes so far.
      status: of the last process that has ended.
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
        self.starts = self.status = self._failures = 0
        self.start()

    def start(self) -> None:
        """Starts a process, or lets the spare one run."""
        self._due = None
        if self._spare is None or self._spare.process.poll() is not None:
            self.dismiss()
            self._spare = self._started()
        (self.process, self._reader), self._spare = self._spare, None
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
            spare.reader.join(_TO_END)
            if spare.process.stdin is not None:
                spare.process.stdin.close()
            spare.process.wait()

    def _started(self) -> Running:
        process = subprocess.Popen(
            self._command,
            env=self._env,
            stdin=subprocess.PIPE if self._spares else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        arguments = self.name, process.stdout
        reader = Thread(target=_pass_on, args=arguments, daemon=True)
        reader.start()
        return Running(process, reader)

    def ended(self) -> str | None:
        """How the process has ended, in words; None while it runs."""
        if self.process is None or self.process.poll() is None:
            return None
        self._reader.join(_TO_END)
        self.status = code = self.process.returncode
        pid, self.process = self.process.pid, None
        soon = time.monotonic() - self._since < _SOON
        self._failures = self._failures + 1 if soon and code > 0 else 0
        how = f"status {code}" if code >= 0 else signal.Signals(-code).name
        return f"{self.name} (process {pid}) ended by {how}"

    def may_start(self) -> bool:
        """Whether another process should try."""
        return self.status != 0 and self._failures < _TRIES

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


def supervise(
    command: Sequence[str],
    names: Sequence[str],
    carrier: str,
    environment: Mapping[str, str] | None = None,
    *,
    spares: bool = False,
) -> int:
    """Runs a command in a process for each name, until all are done.

    Args:
      command: the program and its arguments.
      names: the islands' names.
      carrier: as in `relaxjax.islands.join`.
      environment: variables to set for all of them.
      spares: whether a process that has imported JAX stands by for each island; the
        program is Python then, and runs a script.

    Returns:
      0 if all are done; 1 if an island was given up; 128 + the number of the signal
      that has ended the run.

    Raises:
      ValueError: a carrier that is not one, or cannot be written.
    """
    store = open_store(carrier)
    mortal = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    env = {**os.environ, **(environment or {}), CARRIER: carrier}
    command = [*mortal, *(waiting(command) if spares else command)]
    places = [Place(members.check_name(n), command, env, spares) for n in names]
    given_up = 0
    with stopping(places) as asked:
        while any(place.is_open for place in places) and not _is_over(asked, places):
            for place in places:
                if not asked:
                    place.start_if_due()
                    place.stand_by()
                how = place.ended()
                if how is None:
                    continue
                with suppress(OSError):
                    mark_left(store, place.name)
                if asked or place.status == 0:
                    continue
                goes_on = place.may_start()
                say(f"{how}; {'starting it again' if goes_on else 'given up'}")
                given_up += not goes_on
                if goes_on:
                    place.start_later()
            time.sleep(_POLL)
    return 128 + asked[0] if asked else int(given_up > 0)


def _is_over(asked: list[int], places: list[Place]) -> bool:
    """Whether all have ended that were asked to."""
    return bool(asked) and not any(place.process for place in places)


def mark_left(store: Any, name: str) -> None:
    """Nobody waits for the island's newest process any more."""
    newest = members.newest(store).get(name)
    if newest is not None:
        members.leave(store, members.Member(name, newest))


@contextmanager
def stopping(places: list[Place]) -> Iterator[list[int]]:
    """Passes Ctrl-C and SIGTERM on, and kills what has not ended some seconds later."""
    asked: list[int] = []

    def kill() -> None:
        for place in places:
            place.send(signal.SIGKILL)

    def later() -> None:
        time.sleep(_TO_END)
        kill()

    def stop(number: int, _: Any) -> None:
        hosts.heard()
        asked.append(number)
        for place in places:
            place.send(signal.SIGTERM)
        Thread(target=later, daemon=True).start()

    signals = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, stop) for number in signals}
    hosts.keeps(nothing="the run is in its folder: the same command goes on")
    try:
        with hosts.listens("the islands have not ended yet", kill):
            yield asked
    finally:
        kill()
        for place in places:
            place.dismiss()
        for number, handler in before.items():
            signal.signal(number, handler)


def _pass_on(name: str, stream: IO[str]) -> None:
    with stream:
        for line in stream:
            print(f"[{name}] {line.rstrip()}", flush=True)


def say(words: str) -> None:
    """A line on stderr."""
    print(f"relaxjax islands: {words}", file=sys.stderr, flush=True)
