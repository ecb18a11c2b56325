"""JSON that others have written, bounded before Python's parser sees it.

    file      a regular one of at most so many bytes, compared before one is read
    levels    at most a hundred, counted from left to right
    numbers   no NaN and no infinity, unless asked for: JSON has none
    types     by a specification, with `wrong` (`_types.py`)

Whoever reads a file adds its name to the `ValueError`.

Cost: O(bytes).
"""

import json
import os
import re
import stat
from collections.abc import Callable
from typing import Any

import numpy as np

LEVELS = 100
SMALL = 2**16
"""Bytes of a file with a few figures."""
LARGE = 2**26
"""Bytes of a file with many."""
# A run of texts with what is between them; a text that never ends is taken to the end.
_TEXTS = re.compile(rb'(?:"(?:[^"\\]++|\\.)*+"?[^"\[\]{}]*+)++', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # 1 and -1 as int8
_REST = bytes({*range(256)} - {*b"[{]}"})


def scalar(x: Any) -> Any:
    """Python's number for one of NumPy or JAX, and anything else as it is."""
    one = getattr(x, "shape", None) == () and hasattr(x, "item")
    return x.item() if one else x


def number(x: Any) -> Any:
    """Python's number for one of NumPy or JAX, as `json.dumps(default=number)` asks.

    Raises:
      TypeError: it is something else, which JSON has no form for.

    Example:
      >>> import json, numpy as np
      >>> from relaxjax._core.foreign._json import number
      >>> json.dumps({"steps": np.int64(4)}, default=number)
      '{"steps": 4}'
    """
    if (found := scalar(x)) is x:
        raise TypeError(f"{type(x).__name__} is not JSON serializable")
    return found


def contents_of(path: str | os.PathLike[str], most: int) -> bytes:
    """The bytes of a regular file; pipes, which may never answer, are not waited for.

    Raises:
      ValueError: it is something else, or longer than `most` bytes.
      OSError: it cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no regular file")
        if (size := found.st_size) > most:
            raise ValueError(f"it has {size} bytes, and {most} at most are read")
        return file.read(most)


def parsed(data: bytes, *, finite: bool = True) -> Any:
    """What JSON says.

    Args:
      data: UTF-8.
      finite: whether NaN and infinities, as Python writes them, are refused.

    Raises:
      ValueError: it is not JSON, or deeper than a hundred levels.

    Example:
      >>> from relaxjax._core.foreign._json import parsed
      >>> parsed(b'{"workers": 8}')
      {'workers': 8}
    """
    if _depth(data) > LEVELS:
        raise ValueError(f"it is JSON of more than {LEVELS} levels")
    constant: Callable[[str], Any] = _refuse if finite else float
    try:
        return json.loads(data, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error


def read_json(path: str | os.PathLike[str], most: int, *, finite: bool = True) -> Any:
    """What a file of at most so many bytes says.

    Raises:
      ValueError: it is not JSON, or not within the bounds.
      OSError: it cannot be read.
    """
    return parsed(contents_of(path, most), finite=finite)


def _depth(data: bytes) -> int:
    """The most brackets that are open at once, outside of texts."""
    steps = _TEXTS.sub(b"", data).translate(_STEPS, _REST)
    open_at = np.frombuffer(steps, np.int8).cumsum(dtype=np.int32)
    return int(open_at.max(initial=0))


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number")
