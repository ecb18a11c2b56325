"""The files of a checkpoint: equal pieces are written once, and all bytes are checked.

    data-0.bin, data-1.bin ..    pieces, one after the other; a file for each process
    index.json                   where each piece is, with its SHA-256; the first line
                                 is the SHA-256 of the rest

Pieces of the same bytes are stored once: one row of an array that all workers share.
Every byte of every file is under a digest, so that a changed one is found.

Cost: 8 bytes of index per worker and array, about 100 for each different piece.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from relaxjax._core._folders import local_path
from relaxjax._core.foreign._json import contents_of, parsed
from relaxjax.checkpoint._snapshot import Block, Snapshot, digest

_FORMAT = 1
_INDEX = "index.json"
_MOST = 2**32  # bytes of an index


def writable_folder(directory: str | os.PathLike[str]) -> Path:
    """The absolute path of a folder that can be written to; it is made if missing."""
    path = local_path("Checkpoints", "directory", directory).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ValueError(
            f"Checkpoints: cannot write to the folder {path} ({error.strerror}); name "
            "another, or change its permissions"
        ) from error
    return path


def require_shared(folder: Path, processes: Sequence[int]) -> str:
    """Refuses a folder that is not the same one for all processes, which all call this.

    The first writes a file with a name that it draws, and the others look for it; the
    name is returned, as one of the run.
    """
    drawn = np.frombuffer(os.urandom(8), np.uint32)
    if len(processes) == 1:
        return drawn.tobytes().hex()
    gather = multihost_utils.process_allgather
    name = np.asarray(gather(drawn))[processes[0]].tobytes().hex()
    mark = folder / f".shared-{name}"
    if jax.process_index() == processes[0]:
        mark.touch()
    gather(np.int32(0))  # it is there before anybody looks
    there = np.asarray(gather(np.bool_(mark.exists())))
    mark.unlink(missing_ok=True)
    if blind := [i for i in processes if not there[i]]:
        raise ValueError(
            f"Checkpoints: {folder} of process {processes[0]} is not the folder that "
            f"processes {blind} see under their name for it; name one that all hosts "
            "share, by the same path or not"
        )
    return name


def write(directory: Path, state: Snapshot, metadata: Mapping[str, Any]) -> None:
    """Writes this process's files into a folder, and what JSON takes beside them.

    The file of its pieces comes last, and at once: where it is, all is written.
    """
    digests = state.digests or [digest(state.bytes[i]) for i in sorted(state.bytes)]
    numbers: dict[str, int] = {}  # of each different piece, by its digest
    blobs: list[tuple[int, int, int, str]] = []
    ends: dict[int, int] = {}  # of each process's file so far
    mine: list[np.ndarray] = []
    for i, (piece, text) in enumerate(zip(state.pieces, digests, strict=True)):
        if text in numbers:
            continue
        numbers[text] = len(blobs)
        start = ends.get(piece.owner, 0)
        blobs.append((piece.owner, start, piece.nbytes, text))
        ends[piece.owner] = start + piece.nbytes
        if piece.owner == state.process:
            mine.append(state.bytes[i])
    if state.process == state.first:
        arrays = _arrays(state, [numbers[text] for text in digests])
        body = {"format": _FORMAT, **metadata, "blobs": blobs, "arrays": arrays}
        _write_index(directory / _INDEX, {**body, "values": state.values})
    whole = file_of(directory, state.process)
    part = whole.with_suffix(".part")
    with part.open("wb") as file:
        for blob in mine:
            file.write(blob.view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())  # a disk may say only now that it is full
    os.rename(part, whole)


class Saved(Mapping[str, np.ndarray]):
    """A checkpoint on disk: arrays [n, ...] by name, for typed keys their data.

    Attributes:
      metadata: what was put down beside the state.
      loop: leaves that are not arrays.
      kinds: dtype and shape of each array's row.
    """

    def __init__(self, directory: Path):
        """Reads the index and checks every file."""
        self.metadata = _read_index(directory)
        self._arrays = self.metadata["arrays"]
        self._blobs = _checked_blobs(directory, self.metadata["blobs"])
        self.loop = {k: _unplain(v) for k, v in self.metadata["values"].items()}
        self.kinds = {
            k: (x["dtype"], tuple(x["shape"])) for k, x in self._arrays.items()
        }

    def __getitem__(self, name: str) -> np.ndarray:
        return self.rows(name, 0, self.metadata["workers"])

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
    """Dtype and shape as stored: for keys, those of their data."""
    if not dtype.startswith("key<"):
        return jnp.dtype(dtype), shape
    impl = dtype.removeprefix("key<").removesuffix(">")
    full = {"fry": "threefry2x32", "urbg": "unsafe_rbg"}.get(impl, impl)
    key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=full)))
    return key.dtype, (*shape, *key.shape)


def file_of(directory: Path, process: int) -> Path:
    """The file of a process's pieces."""
    return directory / f"data-{process}.bin"


def _arrays(state: Snapshot, numbers: list[int]) -> dict[str, Any]:
    """For each array: dtype and shape of a row, and the blobs of each block by row."""
    blocks: dict[str, dict[Block, dict[int, int]]] = {name: {} for name in state.leaves}
    for piece, number in zip(state.pieces, numbers, strict=True):
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
        for name, (dtype, shape) in state.leaves.items()
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
        raw = contents_of(directory / _INDEX, _MOST)
    except ValueError:
        raise _broken(directory / _INDEX) from None
    except OSError as error:
        raise ValueError(
            f"checkpoint: {directory} has no {_INDEX} that can be read "
            f"({error.strerror}): it is not a checkpoint of relaxjax, or a part of it "
            "is missing"
        ) from error
    first, _, text = raw.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != first:
        raise _broken(directory / _INDEX)
    body = parsed(text, finite=False)
    if body["format"] != _FORMAT:
        raise ValueError(
            f"checkpoint: {directory} is of format {body['format']}, and this version "
            f"of relaxjax reads format {_FORMAT}; use the version that wrote it"
        )
    return body


def _checked_blobs(directory: Path, blobs: list[Any]) -> list[np.ndarray]:
    """The bytes of each blob, in memory-mapped files."""
    sizes: dict[int, int] = {}
    for process, start, nbytes, _ in blobs:
        sizes[process] = max(sizes.get(process, 0), start + nbytes)
    files = {}
    for process, size in sizes.items():
        path = file_of(directory, process)
        if not path.is_file() or path.stat().st_size != size:
            raise _broken(path)
        empty = np.empty(0, np.uint8)
        files[process] = np.memmap(path, np.uint8, mode="r") if size else empty
    parts = []
    for process, start, nbytes, text in blobs:
        parts.append(files[process][start : start + nbytes])
        if digest(parts[-1]) != text:
            raise _broken(file_of(directory, process))
    return parts


def _broken(path: Path) -> ValueError:
    return ValueError(
        f"checkpoint: {path} is not as it was written: it is missing, cut off or "
        "changed. Nothing was restored. Bring it back from a copy, or remove the "
        f"folder {path.parent.parent} to go on from the checkpoint before it"
    )
