"""Messages on a socket: a header in JSON behind its length, then raw bytes.

Nothing that is received is ever executed: headers are JSON, arrays are bytes whose
shape and dtype the receiver knows.

Cost: about 80 bytes for each message beside its array.
"""

import json
import socket
import struct
import time
from threading import Lock
from typing import Any

import numpy as np

_LENGTH = struct.Struct(">I")
_LONGEST = 1 << 24
_PIECE = 1 << 16


class TransferError(RuntimeError):
    """A transfer that did not come in time, or a peer that is gone."""


class Pace:
    """Sends at most `rate` bytes per second (None: any), by sleeping between pieces."""

    def __init__(self, rate: float | None = None):
        self._rate, self._free, self._lock = rate, 0.0, Lock()

    def send(self, peer: socket.socket, data: memoryview) -> None:
        """Sends all of it; the socket's timeout holds for each piece of 64 KiB."""
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            if self._rate is not None:
                self._wait(len(piece) / self._rate)
            peer.sendall(piece)

    def _wait(self, seconds: float) -> None:
        with self._lock:
            start = max(time.perf_counter(), self._free)
            self._free = start + seconds
        time.sleep(max(0.0, start + seconds - time.perf_counter()))


def send(
    peer: socket.socket,
    header: dict[str, Any],
    array: np.ndarray | None = None,
    pace: Pace | None = None,
) -> None:
    """Sends a header, and the bytes of an array behind it.

    Raises:
      OSError: the peer is gone, or takes nothing until the socket's timeout.
    """
    text = json.dumps(header).encode()
    peer.sendall(_LENGTH.pack(len(text)) + text)
    if array is not None:
        (pace or Pace()).send(peer, as_bytes(array))


def as_bytes(array: np.ndarray) -> memoryview:
    """The bytes of a C-contiguous array, without a copy."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def receive_header(peer: socket.socket) -> dict[str, Any]:
    """The next header.

    Raises:
      OSError: the peer is gone, or silent until the socket's timeout.
      ValueError: what came is not a header.
    """
    prefix = bytearray(_LENGTH.size)
    fill(peer, memoryview(prefix))
    (length,) = _LENGTH.unpack(prefix)
    if length > _LONGEST:
        raise ValueError(f"a header of {length} bytes: the peer speaks something else")
    text = bytearray(length)
    fill(peer, memoryview(text))
    header = json.loads(text)
    if not isinstance(header, dict) or "kind" not in header:
        raise ValueError(f"no header: {text[:80]!r}")
    return header


def receive_array(peer: socket.socket, shape: Any, dtype: Any) -> np.ndarray:
    """The array behind a header, in fresh memory."""
    array = np.empty(shape, dtype)
    fill(peer, as_bytes(array))
    return array


def fill(peer: socket.socket, into: memoryview) -> None:
    """Receives exactly as many bytes as there is room for.

    Raises:
      OSError: the peer is gone, or silent until the socket's timeout.
    """
    got = 0
    while got < len(into):
        count = peer.recv_into(into[got:])
        if not count:
            raise ConnectionError("the connection was closed")
        got += count
