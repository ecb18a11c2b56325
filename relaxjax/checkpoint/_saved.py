"""A checkpoint on disk, read: all bytes are checked before any is used.

Cost: one pass over the files; arrays stay in memory-mapped files until their rows are
asked for.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core.foreign._json import contents_of, parsed
from relaxjax.checkpoint._files import FORMAT, INDEX, file_of
from relaxjax.checkpoint._snapshot import digest

_MOST = 2**32  # bytes of an index


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


def _unplain(x: Any) -> Any:
    if not isinstance(x, dict):
        return x
    dtype, shape, data = x["numpy"]
    array = np.frombuffer(bytes.fromhex(data), jnp.dtype(dtype)).reshape(shape).copy()
    return array[()] if x["scalar"] else array


def _read_index(directory: Path) -> dict[str, Any]:
    try:
        raw = contents_of(directory / INDEX, _MOST)
    except ValueError:
        raise _broken(directory / INDEX) from None
    except OSError as error:
        raise ValueError(
            f"checkpoint: {directory} has no {INDEX} that can be read "
            f"({error.strerror}): it is not a checkpoint of relaxjax, or a part of it "
            "is missing"
        ) from error
    first, _, text = raw.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != first:
        raise _broken(directory / INDEX)
    body = parsed(text, finite=False)
    if body["format"] != FORMAT:
        raise ValueError(
            f"checkpoint: {directory} is of format {body['format']}, and this version "
            f"of relaxjax reads format {FORMAT}; use the version that wrote it"
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
