"""A worker's pulls, whose layers wait for what arrives.

Cost: one thread for each server while leaves arrive.
"""

import socket
import time
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any, NamedTuple, TypeVar

import jax

from benchmarks.testbed.message import (
    Pace,
    TransferError,
    receive_array,
    receive_header,
    send,
)
from benchmarks.testbed.records import Event

T = TypeVar("T")


class Peer(NamedTuple):
    """A server, as a worker sees it.

    Attributes:
      number: index of the server.
      socket: socket that is connected to it.
      wait: seconds without a byte after which a transfer is lost.
      pace: pace of what is sent.
    """

    number: int
    socket: socket.socket
    wait: float
    pace: Pace

    def lost(self, what: str, error: Exception) -> TransferError:
        """The error of a transfer that does not come."""
        if isinstance(error, TransferError):
            return error
        if isinstance(error, TimeoutError):
            reason = f"no byte came for wait={self.wait} s"
        elif isinstance(error, OSError | ValueError):
            reason = str(error)
        else:
            reason = f"what came made a {error!r}"
        return TransferError(f"{what}, server {self.number}: {reason}")

    def expect(self, kind: str) -> dict[str, Any]:
        """The next header, which must be of a kind.

        Raises:
          TransferError: the server reports an error, or something else came.
        """
        header = receive_header(self.socket)
        if header["kind"] == "error":
            raise TransferError(f"server {self.number}: {header['text']}")
        if header["kind"] != kind:
            raise TransferError(f"server {self.number}: {kind} expected, got {header}")
        return header


class Pulls:
    """The pulls of a step that began at some second: asked for at once, in threads."""

    def __init__(self, peers: list[Peer], leaves: dict[str, Any], began: float):
        self._peers, self._leaves, self._began = peers, leaves, began
        self._changed = Condition()
        self._error: TransferError | None = None
        self.leaves: dict[str, jax.Array] = {}
        self.events: list[Event] = []

    def start(self, orders: list[list[str]], version: int) -> None:
        """Asks each server for its leaves, in order, after so many updates."""
        for peer, order in zip(self._peers, orders, strict=True):
            Thread(target=self._pull, args=(peer, order, version), daemon=True).start()

    def first(self, look: Callable[[], T | None]) -> T:
        """Waits until `look`, called after each arrival, finds something.

        Raises:
          TransferError: a transfer did not come.
        """
        with self._changed:
            while (result := look()) is None:
                if self._error is not None:
                    raise self._error
                self._changed.wait()
            return result

    def _pull(self, peer: Peer, order: list[str], version: int) -> None:
        name = order[0]
        try:
            send(peer.socket, {"kind": "pull", "order": order, "version": version})
            for name in order:
                self._receive(peer, name)
        except Exception as error:  # whatever it is, somebody waits for this thread
            with self._changed:
                self._error = self._error or peer.lost(f"pull of {name!r}", error)
                self._changed.notify_all()

    def _receive(self, peer: Peer, name: str) -> None:
        header = peer.expect("leaf")
        if header["name"] != name:
            raise ValueError(f"it sent {header['name']!r} in its place")
        start = time.perf_counter() - self._began
        spec = self._leaves[name]
        leaf = jax.device_put(receive_array(peer.socket, spec.shape, spec.dtype))
        with self._changed:
            self.leaves[name] = leaf
            end = time.perf_counter() - self._began
            self.events.append(Event(name, start, end))
            self._changed.notify_all()
