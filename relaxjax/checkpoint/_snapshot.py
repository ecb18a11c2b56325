"""A copy of training state on the host, in the pieces that go to disk.

A piece is what one device holds of one worker's row of an array. All processes know
all pieces and who holds them; each has the bytes of its own. The copy is made before
`snapshot` returns, so that the state may be donated to the next step.

Cost: a copy of what this process holds. With several processes, the digests of all
pieces are gathered as well (32 bytes each), before the next step.
"""

import hashlib
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from relaxjax.checkpoint._tree import data_of, is_array, named

Block = tuple[tuple[int, int], ...]
"""Start and stop along each axis of a row."""


class Piece(NamedTuple):
    """A part of an array, in one place.

    Attributes:
      leaf: name of the array.
      row: of which worker.
      block: where in the row.
      nbytes: how long.
      owner: the process that writes it.
    """

    leaf: str
    row: int
    block: Block
    nbytes: int
    owner: int


class Snapshot(NamedTuple):
    """Training state on the host.

    Attributes:
      pieces: all there are, in an order that is the same on all processes.
      bytes: of each piece that this process owns, by its position.
      digests: of all pieces; None: not yet known, all are of this process.
      leaves: dtype and shape of each array's row.
      values: leaves that are no arrays, as JSON takes them.
      process: this one's index, and that of the one that writes what is common.
      first: the process that writes what is common.
    """

    pieces: list[Piece]
    bytes: dict[int, np.ndarray]
    digests: list[str] | None
    leaves: dict[str, tuple[str, tuple[int, ...]]]
    values: dict[str, Any]
    process: int
    first: int


def snapshot(state: Any, processes: tuple[int, ...]) -> Snapshot:
    """A copy of what this process holds.

    Args:
      state: a tree; `jax.Array`s are of workers, [n, ...].
      processes: that hold the arrays, all of which call this at once.

    Raises:
      TypeError: a leaf that is no array, number or text.
    """
    pieces: list[Piece] = []
    held: dict[int, np.ndarray] = {}
    leaves: dict[str, tuple[str, tuple[int, ...]]] = {}
    values: dict[str, Any] = {}
    for name, leaf in named(state).items():
        if is_array(leaf):
            leaves[name] = str(leaf.dtype), leaf.shape[1:]
            _copy(name, data_of(leaf), pieces, held)
        else:
            values[name] = _plain(name, leaf)
    found = None
    if len(processes) > 1:
        found = _gathered({i: digest(x) for i, x in held.items()}, len(pieces))
    mine = jax.process_index()
    return Snapshot(pieces, held, found, leaves, values, mine, min(processes))


def digest(x: np.ndarray) -> str:
    """SHA-256 of an array's bytes."""
    return hashlib.sha256(x.view(np.uint8).data).hexdigest()


def _copy(
    name: str, x: jax.Array, pieces: list[Piece], held: dict[int, np.ndarray]
) -> None:
    """Adds an array's pieces, and the bytes of those that are this process's."""
    here = {shard.device: shard.data for shard in x.addressable_shards}
    first: dict[Any, Any] = {}  # device that writes it, of each different part
    places = x.sharding.devices_indices_map(x.shape)
    for device in sorted(places, key=lambda device: device.id):
        first.setdefault(_ranges(places[device], x.shape), device)
    for ((start, stop), *block), device in first.items():
        copy = None
        if device in here:
            copy = np.array(here[device], order="C").reshape(stop - start, -1)
        size = x.dtype.itemsize * int(np.prod([b - a for a, b in block]))
        for row in range(start, stop):
            if copy is not None:
                held[len(pieces)] = copy[row - start]
            owner = device.process_index
            pieces.append(Piece(name, row, tuple(block), size, owner))


def _ranges(index: tuple[slice, ...], shape: tuple[int, ...]) -> Block:
    """Slices as numbers."""
    spans = (s.indices(size)[:2] for s, size in zip(index, shape, strict=True))
    return tuple((start, stop) for start, stop in spans)


def _plain(name: str, x: Any) -> Any:
    if isinstance(x, np.ndarray | np.generic):
        kind = str(x.dtype), np.shape(x), np.asarray(x).tobytes().hex()
        return {"numpy": kind, "scalar": isinstance(x, np.generic)}
    if isinstance(x, bool | int | float | str):
        return x
    raise TypeError(
        f"checkpoint: {name!r} is a {type(x).__name__}; the state may hold arrays of "
        "workers, NumPy arrays, numbers and texts"
    )


def _gathered(mine: dict[int, str], count: int) -> list[str]:
    """The digests of all processes' pieces."""
    rows = np.zeros((count, 32), np.uint8)
    for i, text in mine.items():
        rows[i] = np.frombuffer(bytes.fromhex(text), np.uint8)
    everywhere = np.asarray(multihost_utils.process_allgather(rows))
    merged = np.bitwise_or.reduce(everywhere, axis=0)  # each has one owner
    return [row.tobytes().hex() for row in merged]
