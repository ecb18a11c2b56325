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
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from relaxjax._core.foreign._folders import local_path
from relaxjax._core.foreign._together import gathered
from relaxjax.checkpoint._snapshot import Block, Snapshot, digest

FORMAT = 1
INDEX = "index.json"


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
    gather = partial(gathered, "Checkpoints")
    name = gather(drawn)[processes[0]].tobytes().hex()
    mark = folder / f".shared-{name}"
    if jax.process_index() == processes[0]:
        mark.touch()
    gather(np.int32(0))  # it is there before anybody looks
    there = gather(np.bool_(mark.exists()))
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
        body = {"format": FORMAT, **metadata, "blobs": blobs, "arrays": arrays}
        _write_index(directory / INDEX, {**body, "values": state.values})
    whole = file_of(directory, state.process)
    part = whole.with_suffix(".part")
    with part.open("wb") as file:
        for blob in mine:
            file.write(blob.view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())  # a disk may say only now that it is full
    os.rename(part, whole)


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


def _write_index(path: Path, body: dict[str, Any]) -> None:
    text = json.dumps(body, separators=(",", ":"))
    path.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
