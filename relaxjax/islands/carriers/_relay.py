"""A store whose calls another process of this machine makes.

An island's process on Ray is watched by an actor, which is in the cluster already. The
island's calls go to it through a Unix socket: a process that starts again neither
imports Ray nor joins the cluster.

    request     JSON {"verb", "name"}, of a read also "most"; then the bytes of a file,
                if one is written
                JSON {"verb": "changes", "name": journal, "count"}
    answer      JSON {"value"} or {"error": [number, why, file]}; then those of one read

Nothing is unpickled, and the socket lies in a folder that only its owner may open.

Cost: bytes cross a socket once more.
"""

import errno
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from relaxjax._core.foreign._json import parsed
from relaxjax.islands.carriers._remembered import Changes, Journaled
from relaxjax.islands.carriers._store import ByCalls

RELAY = "RELAXJAX_RELAY"
"""The variable with the socket's path."""

_VERBS = frozenset({"create", "replace", "read", "names", "delete", "changes"})
_WRITES = frozenset({"create", "replace"})
_MOST = 2**28  # bytes of a call or an answer, without contents


class RelayedStore(ByCalls):
    """A store behind a socket.

    Attributes:
      place: the carrier.
      carrier: how `join` names it.
    """

    def __init__(self, address: str, carrier: str):
        """Connects.

        Raises:
          ValueError: nobody answers at the socket.
        """
        self.place = self.carrier = carrier
        self._lock = Lock()  # an island calls from two threads
        try:
            self._connection = Client(address, "AF_UNIX")
        except OSError as error:
            raise ValueError(
                f"islands: {RELAY}={address} is a socket that nobody answers "
                f"({error.strerror}): it is set by the actor of an island for its own "
                "process; unset it elsewhere"
            ) from error

    def changes(self, journal: str, count: int) -> Changes:
        """What has changed since a journal had that many changes."""
        asked = {"verb": "changes", "name": journal, "count": count}
        return Changes(*self._answer(asked))

    def _call(self, verb: str, name: str, *rest: Any) -> Any:
        if verb == "read":
            return self._answer({"verb": verb, "name": name, "most": rest[0]})
        return self._answer({"verb": verb, "name": name}, *rest)

    def _answer(self, asked: dict[str, Any], *data: bytes) -> Any:
        with self._lock:
            try:
                _send(self._connection, asked)
                for written in data:
                    self._connection.send_bytes(written)
                answer = _received(self._connection)
                if asked["verb"] == "read" and "error" not in answer:
                    return self._connection.recv_bytes()
            except (EOFError, OSError) as error:
                why = "the island's actor does not answer"
                raise OSError(errno.EHOSTUNREACH, why, self.place) from error
        if "error" in answer:
            raise OSError(*answer["error"])
        return answer["value"]


@contextmanager
def relayed(store: Journaled) -> Iterator[str]:
    """Answers calls of the store while it is open; the socket's path."""
    with tempfile.TemporaryDirectory(prefix="relaxjax-") as folder:
        address = str(Path(folder) / "store")
        with Listener(address, "AF_UNIX", backlog=8) as listener:
            is_over = Event()
            thread = Thread(target=_accept, args=(listener, store, is_over))
            thread.daemon = True
            thread.start()
            try:
                yield address
            finally:
                is_over.set()
                Client(address, "AF_UNIX").close()  # a close alone wakes nobody
                thread.join()


def _accept(listener: Listener, store: Journaled, is_over: Event) -> None:
    while True:
        connection = listener.accept()
        if is_over.is_set():
            connection.close()
            return
        Thread(target=_answer, args=(connection, store), daemon=True).start()


def _answer(connection: Connection, store: Journaled) -> None:
    """Calls of one process, until it ends or says what is no call."""
    with connection, suppress(EOFError, OSError, ValueError, KeyError, TypeError):
        while True:
            asked = _received(connection)
            verb, arguments = asked["verb"], list[Any]([str(asked["name"])])
            if verb not in _VERBS:
                return
            if verb in _WRITES:
                arguments.append(connection.recv_bytes())
            if verb == "changes":
                arguments.append(int(asked["count"]))
            if verb == "read":
                arguments.append(asked.get("most"))
            try:
                value = getattr(store, verb)(*arguments)
            except OSError as error:
                why = [error.errno, error.strerror, error.filename]
                _send(connection, {"error": why})
                continue
            _send(connection, {"value": None if verb == "read" else value})
            if verb == "read":
                connection.send_bytes(value)


def _send(connection: Connection, said: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(said).encode())


def _received(connection: Connection) -> dict[str, Any]:
    return parsed(connection.recv_bytes(_MOST))
