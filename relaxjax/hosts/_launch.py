"""Starts one program in several processes, and ends them together.

Each process finds `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES`, `JAX_PROCESS_ID` and
a secret of this job, `RELAXJAX_JOB_TOKEN`, in its environment, and all that it prints
is passed on with its number in front. When one fails, the others get some seconds to
end by themselves; a signal to this process is passed on to all. When nobody reads what
is printed any more, all end.
"""

import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock, current_thread, main_thread
from typing import Any

from relaxjax._core.foreign._huge_pages import huge_pages
from relaxjax._core.foreign._job import COUNT, TOKEN
from relaxjax.hosts._crew import Crew, Ended, Say
from relaxjax.hosts._interrupt import heard, installed, keeps, listens
from relaxjax.hosts._links import Links, Loopback, Place
from relaxjax.hosts._rendezvous import BIND

_PORT = 29400  # in a namespace, where nothing else listens
_WAITS = "the processes have not ended yet; a second Ctrl-C kills them"
_LINES = Lock()  # of a stream's buffer, for which `flush` is no atomic write

LOOPBACK = Loopback()


def launch(
    command: Sequence[str],
    processes: int,
    *,
    links: Links = LOOPBACK,
    environment: Mapping[str, str] | None = None,
    grace: float = 30.0,
    say: Say | None = None,
) -> Ended:
    """Runs a command in several processes at once, until all have ended.

    Args:
      command: the program and its arguments.
      processes: number of processes, 1 or more.
      links: `Loopback()`, or `Namespaces(rate)`; opened and closed here.
      environment: variables to set for all of them.
      grace: seconds that the others get to end when one has failed.
      say: called as `say(process, stream, line)` with "stdout" or "stderr" for each
        line; None prints.

    Raises:
      ValueError: fewer than one process.
      OSError: the links could not be made, or the program cannot be started.
    """
    if processes < 1:
        raise ValueError(f"launch: processes={processes}; it must be 1 or more")
    with ExitStack() as stack:
        stack.callback(links.close)
        crew = Crew(say or _print)
        stack.callback(crew.kill)
        stack.enter_context(_forwarded(crew, links))
        places = links.open([f"process {i}" for i in range(processes)])
        for number in crew.signals[:1]:
            return Ended(128 + number, "no process was started")
        address, token = _coordinator(places["process 0"]), secrets.token_hex(16)
        for i in range(processes):
            env = {**os.environ, **(environment or {})}
            env |= huge_pages(env)
            env["JAX_COORDINATOR_ADDRESS"] = address
            env[COUNT] = str(processes)
            env["JAX_PROCESS_ID"] = str(i)
            env.setdefault(TOKEN, token)
            env.pop(BIND, None)  # that of another job, around this one
            crew.start(_inside(places[f"process {i}"], command), env)
        return _interrupted(crew.wait(grace), crew.signals)


@contextmanager
def _forwarded(crew: Crew, links: Links) -> Iterator[None]:
    """Passes Ctrl-C and SIGTERM on to the processes; a second signal kills them."""

    def kill() -> None:
        crew.kill()
        links.close()

    def forward(number: int, _: Any) -> None:
        heard()
        crew.signals.append(number)
        if len(crew.signals) == 1:
            crew.send(number)
        elif number != signal.SIGINT or not installed():  # whose thread calls `kill`
            crew.send(signal.SIGKILL)

    if current_thread() is not main_thread():
        yield
        return
    signals = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, forward) for number in signals}
    keeps(nothing="all processes were killed; what they wrote is there")
    try:
        with listens(_WAITS, kill):
            yield
    finally:
        keeps(nothing="all processes have ended")
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupted(ended: Ended, signals: Sequence[int]) -> Ended:
    """After a Ctrl-C the job is not done, however well its processes ended."""
    if ended.status or signal.SIGINT not in signals:
        return ended
    return Ended(128 + signal.SIGINT, "interrupted by Ctrl-C")


def _inside(place: Place, command: Sequence[str]) -> list[str]:
    """The command in its namespace; on Linux it is killed if the launcher is."""
    mortal = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    if place.namespace is None:
        return [*mortal, *command]
    return ["ip", "netns", "exec", place.namespace, *mortal, *command]


def _coordinator(place: Place) -> str:
    """An address with a free port."""
    if place.namespace is not None:
        return f"{place.address}:{_PORT}"
    with socket.socket() as free:
        free.bind((place.address, 0))
        return f"{place.address}:{free.getsockname()[1]}"


def _print(number: int, name: str, line: str) -> None:
    """One write for each line, so that lines of two processes never join."""
    stream = getattr(sys, name)
    with _LINES:
        stream.write(f"[{number}] {line}\n")
        stream.flush()
