"""A copy of training state on the host, in the pieces that go to disk.

A piece is the part of one worker's row of an array that one device holds. All processes
know all pieces and who writes them; each has the bytes of its own pieces. They are
copied before `snapshot` returns, so that the state may be donated to the next step.

Cost: a copy of what this process holds. Several processes also gather the digests of
all pieces (32 bytes each), and compare the values of the loop, before the next step.
"""

import hashlib
import json
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core.foreign._together import gathered
from relaxjax.checkpoint._agreed import together
from relaxjax.checkpoint._tree import data_of, is_array, named
from relaxjax.workers import require_equal_processes

Block = tuple[tuple[int, int], ...]
"""Start and stop along each axis of a row."""
_ONE_VALUE = (
    "A checkpoint keeps one value of the training loop for all processes. Derive it "
    "from the step, or make an array of the workers of it by relaxjax.to_workers"
)


class Piece(NamedTuple):
    """The part of an array that is in one place."""

    leaf: str  # name of the array
    row: int  # index of the worker
    block: Block  # position in the worker's row
    nbytes: int
    owner: int  # index of the process that writes it


class Snapshot(NamedTuple):
    """Training state on the host."""

    pieces: list[Piece]  # all, in an order that is the same on all processes
    bytes: dict[int, np.ndarray]  # of the pieces of this process, by their positions
    digests: list[str] | None  # of all pieces; None if all are of this process
    leaves: dict[str, tuple[str, tuple[int, ...]]]  # dtype and shape of arrays' rows
    values: dict[str, Any]  # leaves that are not arrays, as JSON takes them
    process: int  # index of this process
    first: int  # index of the process that writes what is common


def snapshot(state: Any, processes: tuple[int, ...]) -> Snapshot:
    """A copy of what this process holds; all processes by these indices make theirs."""
    copies = together("save", len(processes), partial(_copies, state, processes))
    if len(processes) == 1:
        return copies
    told = {f"{name!r}": _told(value) for name, value in copies.values.items()}
    require_equal_processes("save", told, _ONE_VALUE)
    here = {i: digest(x) for i, x in copies.bytes.items()}
    return copies._replace(digests=_digests_of_all(here, len(copies.pieces)))


def _copies(state: Any, processes: tuple[int, ...]) -> Snapshot:
    """The copy, where each process knows the digests of its own pieces only."""
    out = Snapshot([], {}, None, {}, {}, jax.process_index(), min(processes))
    for name, leaf in named(state).items():
        if is_array(leaf):
            _require_everywhere(name, leaf, len(processes))
            out.leaves[name] = str(leaf.dtype), leaf.shape[1:]
            _copy(name, data_of(leaf), out.pieces, out.bytes)
        else:
            out.values[name] = _plain(name, leaf)
    return out


def _told(value: Any) -> str:
    """A value of the loop in a line that is not long, and its digest where it is."""
    text = json.dumps(value)
    full = hashlib.sha256(text.encode()).hexdigest()[:16]
    return text if len(text) <= 60 else f"{text[:40]}.. (digest {full})"


def _require_everywhere(name: str, x: jax.Array, processes: int) -> None:
    """Refuses an array of one process among several: each would write its own."""
    if processes > 1 and x.is_fully_addressable:
        raise ValueError(
            f"checkpoint: {name!r} is a jax.Array that lies on this process alone, and "
            f"the workers are on {processes} processes. If it belongs to the workers, "
            "make it by relaxjax.to_workers or let the step return it; what belongs to "
            "the training loop must be a Python number or a NumPy array"
        )


def digest(x: np.ndarray) -> str:
    """SHA-256 of an array's bytes."""
    return hashlib.sha256(x.view(np.uint8).data).hexdigest()


def _copy(
    name: str, x: jax.Array, pieces: list[Piece], held: dict[int, np.ndarray]
) -> None:
    """Adds an array's pieces, and the bytes of those that this process owns."""
    here = {shard.device: shard.data for shard in x.addressable_shards}
    writers: dict[Any, Any] = {}  # the device that writes each different part
    places = x.sharding.devices_indices_map(x.shape)
    for device in sorted(places, key=lambda device: device.id):
        writers.setdefault(_ranges(places[device], x.shape), device)
    for ((start, stop), *block), device in writers.items():
        copy = None
        if device in here:
            copy = np.array(here[device], order="C").reshape(stop - start, -1)
        size = x.dtype.itemsize * int(np.prod([b - a for a, b in block]))
        for row in range(start, stop):
            if copy is not None:
                held[len(pieces)] = copy[row - start]
            pieces.append(Piece(name, row, tuple(block), size, device.process_index))


def _ranges(index: tuple[slice, ...], shape: tuple[int, ...]) -> Block:
    """Start and stop of each slice."""
    spans = (s.indices(size)[:2] for s, size in zip(index, shape, strict=True))
    return tuple((start, stop) for start, stop in spans)


def _plain(name: str, x: Any) -> Any:
    what = type(x).__name__
    if isinstance(x, np.ndarray | np.generic):
        if _comes_back(x):
            kind = str(x.dtype), np.shape(x), np.asarray(x).tobytes().hex()
            return {"numpy": kind, "scalar": isinstance(x, np.generic)}
        what = f"{what} of {x.dtype}"
    elif isinstance(x, bool | int | float | str):
        return x
    raise TypeError(
        f"checkpoint: {name!r} is a {what}; the state may hold arrays of the workers, "
        "NumPy arrays of numbers or texts, without masks, and Python's numbers and "
        "texts"
    )


def _comes_back(x: np.ndarray | np.generic) -> bool:
    """Whether bytes, and the name of a dtype, are all of it."""
    if isinstance(x, np.ma.MaskedArray) or x.dtype.hasobject or x.dtype.names:
        return False
    return jnp.dtype(str(x.dtype)) == x.dtype


def _digests_of_all(mine: dict[int, str], count: int) -> list[str]:
    """The digests of all pieces, from those of each process."""
    rows = np.zeros((count, 32), np.uint8)
    for i, text in mine.items():
        rows[i] = np.frombuffer(bytes.fromhex(text), np.uint8)
    merged = np.bitwise_or.reduce(gathered("save", rows), axis=0)  # each has one owner
    return [row.tobytes().hex() for row in merged]
