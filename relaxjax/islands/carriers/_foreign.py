"""The door for files that others have written: nothing else reads them.

Whoever may write to a folder may leave anything under any name: half a file, a link, a
pipe that never answers, a number of 400 digits. `contents` reads a regular file of a
size that makes sense, `parsed` takes JSON out of it, and `require` its fields. All that
is wrong is a `DamagedFile` that names the file, so that everything else goes on.

    size      compared before a byte is read
    links     not followed; folders, pipes and devices are not opened for long
    JSON      of at most a hundred levels, without NaN and infinities
    numbers   whole ones from 0 to 2^53, which float64 has exactly; in names, ASCII
    words     `plain` before they are shown: no name moves a terminal's cursor

A carrier that fails (a full disk, a network) is an `OSError` as ever, and tried again.
"""

import errno
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from relaxjax._core.foreign._json import parsed as parsed_json
from relaxjax.islands.carriers._store import Store

MOST = 1 << 53
"""The largest number that a file may have."""
LINE = 1 << 24
"""Bytes of the longest line of JSON."""
SMALL = 1 << 16
"""Bytes of the longest heartbeat, lease, or word of a member about itself."""

_NOT_A_FILE = frozenset(
    {
        errno.ELOOP,
        errno.EISDIR,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EFBIG,
        errno.EACCES,
        errno.EPERM,
    }
)
_NUMBERED = re.compile(r"[0-9]{8,15}")
_SHOWN = 400  # characters of a value in a message

Kind = type | tuple[type, ...]


class DamagedFile(ValueError):
    """A file of a run that is truncated, changed or foreign.

    Attributes:
      name: the file.
      why: what is wrong with it, in words that follow its name.
    """

    def __init__(self, name: str, why: str):
        self.name, self.why = name, plain(f"is damaged or foreign: {why}")
        super().__init__(f"{plain(name)} {self.why}")


def plain(text: str) -> str:
    """The text for a terminal: what cannot be printed as its escape in Python.

    Example:
      >>> from relaxjax.islands.carriers._foreign import plain
      >>> plain("log/" + chr(27) + "[2J") == "log/" + chr(92) + "x1b[2J"
      True
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def shown(value: Any) -> str:
    """A value of a file in a message: in plain words, and not too many."""
    text = plain(repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def contents(store: Store, name: str, most: int) -> bytes:
    """The bytes of a file, if it is one and has at most so many.

    Raises:
      FileNotFoundError: it is not there.
      DamagedFile: it is something else, or longer.
      OSError: the carrier fails.
    """
    try:
        return store.read(name, most)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno not in _NOT_A_FILE:
            raise
        raise DamagedFile(f"{store.place}/{name}", str(error.strerror)) from error


def is_there(store: Store, name: str) -> bool:
    """Whether there is anything under the name of a line of JSON."""
    try:
        contents(store, name, LINE)
    except FileNotFoundError:
        return False
    except DamagedFile:
        pass
    return True


def parsed(name: str, data: bytes) -> Any:
    """What JSON says.

    Raises:
      DamagedFile: it is not JSON, or deeper than files of a run are.
    """
    try:
        return parsed_json(data)
    except ValueError as error:
        raise DamagedFile(name, str(error)) from error


def require(name: str, body: Any, fields: Mapping[str, Kind]) -> None:
    """Fields of these types, numbers among them finite, from 0 to 2^53.

    Raises:
      DamagedFile: one is not.
    """
    if not isinstance(body, dict):
        raise DamagedFile(name, f"{shown(body)} is no object")
    for key, kind in fields.items():
        value = body.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DamagedFile(name, f"{key} is {shown(value)}")
        if isinstance(value, int | float) and not 0 <= value <= MOST:
            raise DamagedFile(name, f"{key} is {shown(value)}, not from 0 to 2^53")


def require_pairs(name: str, key: str, value: Any, *kinds: type) -> None:
    """A list of lists with elements of these types.

    Raises:
      DamagedFile: it is not one.
    """
    fields = dict(enumerate(kinds))
    for one in value if isinstance(value, list) else [None]:
        if not isinstance(one, list) or len(one) != len(kinds):
            raise DamagedFile(name, f"{key} has {shown(one)}")
        named = {f"{key}[{i}]": x for i, x in enumerate(one)}
        require(name, named, {f"{key}[{i}]": kind for i, kind in fields.items()})


def numbered(names: Iterable[str]) -> dict[int, str]:
    """Names that are numbers as a run writes them, such as 00000042, by number."""
    found = (name for name in names if _NUMBERED.fullmatch(name))
    return {int(name): name for name in found if f"{int(name):08d}" == name}


def is_tokens(value: Any) -> bool:
    """Whether a step's tokens may be this: 0, or a number from 2^-53 to 2^53.

    The weights of smaller ones, tokens^2 / steps, are 0 in float32.
    """
    try:
        return math.isfinite(value) and (value == 0 or 1 / MOST <= value <= MOST)
    except (OverflowError, TypeError):
        return False
