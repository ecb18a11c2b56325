"""The files of a checkpoint: what is equal is written once, and all is checked.

    data-0.bin, data-1.bin ..    pieces, one after the other; a file for each process
    index.json                   where each piece is, with its SHA-256; in the first
                                 line that of all that follows

Pieces with the same bytes are one: of an array that is equal on all workers, one row.
Every byte of every file is under a digest, so that a changed one is found.

Cost: 8 bytes of index per worker and array, about 100 for each different piece.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax.checkpoint._snapshot import Block, Snapshot, digest

_FORMAT = 1
_INDEX = "index.json"


def write(directory: Path, found: Snapshot, told: Mapping[str, Any]) -> None:
    """Writes this process's files.

    Args:
      directory: is there, and empty but for other processes' files.
      found: the state.
      told: what else to put down, as JSON takes it.

    Raises:
      OSError: no space, or other trouble.
    """
    digests = found.digests or [digest(found.bytes[i]) for i in sorted(found.bytes)]
    numbers: dict[str, int] = {}
    blobs: list[tuple[int, int, int, str]] = []
    ends: dict[int, int] = {}
    own: list[np.ndarray] = []
    for i, (piece, text) in enumerate(zip(found.pieces, digests, strict=True)):
        if text in numbers:
            continue
        numbers[text] = len(blobs)
        start = ends.get(piece.owner, 0)
        blobs.append((piece.owner, start, piece.nbytes, text))
        ends[piece.owner] = start + piece.nbytes
        if piece.owner == found.process:
            own.append(found.bytes[i])
    with _data(directory, found.process).open("wb") as file:
        for blob in own:
            file.write(blob.view(np.uint8).data)
    if found.process == found.first:
        arrays = _arrays(found, [numbers[text] for text in digests])
        body = {"format": _FORMAT, **told, "blobs": blobs, "arrays": arrays}
        _write_index(directory / _INDEX, {**body, "values": found.values})


class Saved(Mapping[str, np.ndarray]):
    """A checkpoint on disk; arrays by name, [n, ...], of typed keys their data.

    Attributes:
      told: what else was put down.
      kinds: dtype and shape of each array's row.
      loop: leaves that were no arrays.
    """

    def __init__(self, directory: Path):
        """Reads the index and checks every file.

        Raises:
          ValueError: there is none, or a file is not as it was written.
        """
        body = _read_index(directory)
        self.told: dict[str, Any] = body
        self.loop = {k: _unplain(v) for k, v in body["values"].items()}
        self.kinds = {
            k: (x["dtype"], tuple(x["shape"])) for k, x in body["arrays"].items()
        }
        self._arrays = body["arrays"]
        self._blobs = _checked_blobs(directory, body["blobs"])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.rows(name, 0, self.told["workers"])

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """The rows of some workers, [stop - start, ...]."""
        dtype, shape = _stored(*self.kinds[name])
        out = np.empty((stop - start, *shape), dtype)
        for block, numbers in self._arrays[name]["blocks"]:
            where = tuple(slice(a, b) for a, b in block)
            for row in range(start, stop):
                part = out[(row - start, *where)]
                blob = self._blobs[numbers[row if len(numbers) > 1 else 0]]
                out[(row - start, *where)] = blob.view(dtype).reshape(part.shape)
        return out


def _stored(dtype: str, shape: tuple[int, ...]) -> tuple[np.dtype, tuple[int, ...]]:
    """Of keys, that of their data."""
    if not dtype.startswith("key<"):
        return jnp.dtype(dtype), shape
    impl = dtype.removeprefix("key<").removesuffix(">")
    full = {"fry": "threefry2x32", "urbg": "unsafe_rbg"}.get(impl, impl)
    key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=full)))
    return key.dtype, (*shape, *key.shape)


def _data(directory: Path, process: int) -> Path:
    return directory / f"data-{process}.bin"


def _arrays(found: Snapshot, numbers: list[int]) -> dict[str, Any]:
    """Of each array its row's dtype and shape, and the blobs of its blocks by row."""
    blocks: dict[str, dict[Block, dict[int, int]]] = {name: {} for name in found.leaves}
    for piece, number in zip(found.pieces, numbers, strict=True):
        blocks[piece.leaf].setdefault(piece.block, {})[piece.row] = number

    def of_rows(rows: dict[int, int]) -> list[int]:
        listed = [rows[row] for row in sorted(rows)]
        return listed if len(set(listed)) > 1 else listed[:1]

    return {
        name: {
            "dtype": dtype,
            "shape": shape,
            "blocks": [[block, of_rows(rows)] for block, rows in blocks[name].items()],
        }
        for name, (dtype, shape) in found.leaves.items()
    }


def _unplain(x: Any) -> Any:
    if not isinstance(x, dict):
        return x
    dtype, shape, data = x["numpy"]
    array = np.frombuffer(bytes.fromhex(data), jnp.dtype(dtype)).reshape(shape).copy()
    return array[()] if x["scalar"] else array


def _write_index(path: Path, body: dict[str, Any]) -> None:
    text = json.dumps(body, separators=(",", ":"))
    path.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")


def _read_index(directory: Path) -> dict[str, Any]:
    try:
        raw = (directory / _INDEX).read_bytes()
    except OSError as error:
        raise ValueError(
            f"checkpoint: {directory} has no {_INDEX} that can be read "
            f"({error.strerror}): it is no checkpoint of relaxjax, or a part of it is "
            "missing"
        ) from error
    first, _, text = raw.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != first:
        raise _broken(directory / _INDEX)
    body = json.loads(text)
    if body["format"] != _FORMAT:
        raise ValueError(
            f"checkpoint: {directory} is of format {body['format']}, and this version "
            f"of relaxjax reads format {_FORMAT}; use the version that wrote it"
        )
    return body


def _checked_blobs(directory: Path, blobs: list[Any]) -> list[np.ndarray]:
    """The bytes of each blob, in files that are mapped, not read into memory."""
    sizes: dict[int, int] = {}
    for process, start, nbytes, _ in blobs:
        sizes[process] = max(sizes.get(process, 0), start + nbytes)
    files = {}
    for process, size in sizes.items():
        path = _data(directory, process)
        if not path.is_file() or path.stat().st_size != size:
            raise _broken(path)
        empty = np.empty(0, np.uint8)
        files[process] = np.memmap(path, np.uint8, mode="r") if size else empty
    found = []
    for process, start, nbytes, text in blobs:
        blob = files[process][start : start + nbytes]
        if digest(blob) != text:
            raise _broken(_data(directory, process))
        found.append(blob)
    return found


def _broken(path: Path) -> ValueError:
    return ValueError(
        f"checkpoint: {path} is not as it was written: it is missing, cut off or was "
        "changed. Nothing was restored. Bring it back from a copy, or remove the "
        f"folder {path.parent.parent} to go on from the checkpoint before"
    )
