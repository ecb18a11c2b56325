"""A word for a process that JAX's runtime ends: who was lost.

When process 0 dies, JAX's runtime aborts every other process at once, before Python can
say anything. So each process has a small child that reads from a pipe; if that ends
without a goodbye, it asks whether the coordinator still answers, and says what it has
found.

Cost: a bare Python process.
"""

import subprocess
import sys

from relaxjax.hosts._rendezvous import Member

_PROGRAM = """
import socket, sys, time
mine, first, host, port = sys.argv[1:]
if sys.stdin.read() != "bye":
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
    """Watches over this process until `dismiss`.

    Args:
      coordinator: "host:port".
      mine: this process.
      first: process 0.
    """

    def __init__(self, coordinator: str, mine: Member, first: Member):
        host, _, port = coordinator.rpartition(":")
        told = [str(mine), str(first), host.strip("[]"), port]
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *told],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def dismiss(self) -> None:
        """Says goodbye; may be called twice."""
        if self._child.stdin is not None and not self._child.stdin.closed:
            self._child.communicate("bye")
