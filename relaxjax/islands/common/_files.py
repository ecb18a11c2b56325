"""What islands write and read: JSON and arrays under digests; nothing is unpickled.

    record    one line of JSON with sorted keys; "digest" is the SHA-256 of the rest
    arrays    a line: relaxjax-islands 1 SHA256 BYTES; a line of JSON; the arrays' bytes

The second digest is that of all that follows the first line. Sizes, digests, dtypes
and versions are checked before anything is used: a file that is truncated, changed or
foreign is a `DamagedFile` that names it.

Cost: SHA-256 of every byte, at each end.
"""

import hashlib
import json
import re
from typing import Any

import jax.numpy as jnp
import numpy as np

from relaxjax.islands.carriers._foreign import DamagedFile, parsed, shown

Arrays = dict[str, np.ndarray]

FORMAT = 1
_MAGIC = b"relaxjax-islands"
_LONGEST = 200  # bytes of a first line
_DTYPE = re.compile(r"bool|(u?int|b?float|complex)[0-9]+(_[a-z0-9]+)*")


def sha256(data: bytes) -> str:
    """The digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def fingerprint(arrays: Arrays) -> str:
    """The digest of arrays with their names, dtypes and shapes."""
    return sha256(pack({}, arrays))


def seal(body: dict[str, Any]) -> bytes:
    """A record as a line."""
    text = _text({**body, "format": FORMAT})
    return _text({**body, "format": FORMAT, "digest": sha256(text)}) + b"\n"


def unseal(name: str, data: bytes) -> dict[str, Any]:
    """The record in a file, without digest and format.

    Raises:
      DamagedFile: it is not a line that `seal` has written.
    """
    body = parsed(name, data)
    if not isinstance(body, dict) or "digest" not in body:
        raise DamagedFile(name, "it has no digest")
    digest = body.pop("digest")
    try:
        text = _text(body)
    except ValueError as error:
        raise DamagedFile(name, f"it is not JSON ({error})") from error
    if digest != sha256(text):
        raise DamagedFile(name, "its digest is that of other text")
    _require_format(name, body.pop("format", None))
    return body


def pack(meta: dict[str, Any], arrays: Arrays) -> bytes:
    """Arrays and what is said about them, as the bytes of a file."""
    parts = [np.ascontiguousarray(x) for x in arrays.values()]
    listed = [
        [name, str(x.dtype), list(np.shape(arrays[name]))]
        for name, x in zip(arrays, parts, strict=True)
    ]
    head = _text({**meta, "arrays": listed}) + b"\n"
    rest = b"".join([head, *(x.tobytes() for x in parts)])
    return b"%s %d %s %d\n" % (_MAGIC, FORMAT, sha256(rest).encode(), len(rest)) + rest


def unpack(name: str, data: bytes) -> tuple[dict[str, Any], Arrays]:
    """What `pack` was given.

    Raises:
      DamagedFile: these are not bytes that `pack` has made.
    """
    first, newline, rest = data[:_LONGEST].partition(b"\n")
    words = first.split(b" ")
    if not newline or len(words) != 4 or words[0] != _MAGIC:
        raise DamagedFile(name, "its first line is not that of an array file")
    _require_format(name, _whole(words[1]))
    rest, size = data[len(first) + 1 :], _whole(words[3])
    if len(rest) != size:
        said = shown(size)
        raise DamagedFile(name, f"it has {len(rest)} bytes instead of {said}")
    if sha256(rest).encode() != words[2]:
        raise DamagedFile(name, "its digest is that of other bytes")
    head, _, body = rest.partition(b"\n")
    try:
        meta = parsed(name, head)
        return meta, _arrays(meta.pop("arrays"), body)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DamagedFile(name, f"its list of arrays is not one ({error})") from error


def _arrays(listed: Any, body: bytes) -> Arrays:
    arrays: Arrays = {}
    start = 0
    for name, dtype, shape in listed:
        if not _DTYPE.fullmatch(dtype) or min(shape, default=0) < 0:
            raise ValueError(f"{shown(name)}: {shown(dtype)}{shown(shape)}")
        kind = jnp.dtype(dtype)
        stop = start + kind.itemsize * int(np.prod(shape, dtype=np.int64))
        if stop > len(body):
            raise ValueError(f"{shown(name)} goes beyond the end")
        arrays[name] = np.frombuffer(body[start:stop], kind).reshape(shape)
        start = stop
    if start != len(body):
        raise ValueError(f"{len(body) - start} bytes belong to no array")
    return arrays


def _require_format(name: str, number: Any) -> None:
    if number != FORMAT:
        raise DamagedFile(
            name, f"its format is {shown(number)}, and this relaxjax reads {FORMAT}"
        )


def _whole(word: bytes) -> int:
    return int(word) if word.isdigit() else -1


def _text(body: dict[str, Any]) -> bytes:
    return json.dumps(
        body, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()
