"""Records of finished runs: one line of JSON each, written at once and never changed.

    results.jsonl           of a whole study; results-3of8.jsonl of a shard
    a record's key          a digest of everything that decides its numbers

A line is appended and synced before the next run begins, so that whatever ends a study
costs the run under way. A last line without its end is dropped, and said.
"""

import hashlib
import json
import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from relaxjax._core.foreign._json import contents_of, number, parsed
from relaxjax.compare.kept._schema import wrong_record

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

_MOST = 2**30  # bytes of a study's records
Record = dict[str, Any]


def key_of(**decides: Any) -> str:
    """A digest of all that decides a run's numbers, as 16 hexadecimal digits."""
    text = json.dumps(decides, sort_keys=True, allow_nan=False, default=number)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def code_digest() -> str:
    """A digest of relaxjax's own source: other code makes other records."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def append(path: Path, record: Record) -> None:
    """Adds a record as a line, which is on the disk when this returns."""
    line = json.dumps(record, allow_nan=False, default=number) + "\n"
    with path.open("ab") as file:
        if fcntl is not None:  # another process may append as well
            fcntl.flock(file, fcntl.LOCK_EX)
        lines = path.read_bytes()
        if not lines.endswith(b"\n"):
            file.truncate(lines.rfind(b"\n") + 1)  # the whole ones
        file.seek(0, os.SEEK_END)
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def read(folder: Path) -> list[Record]:
    """The records of a study and all its shards, in the order of their files.

    Warns:
      UserWarning: a last line is torn, and left out; it names the file.

    Raises:
      ValueError: a line is not a record, or something under such a name is no file.
    """
    found: dict[str, Record] = {}
    for path in sorted(folder.glob("results*.jsonl")):
        for record in _lines(path):
            found.setdefault(record["key"], record)
    return list(found.values())


def _lines(path: Path) -> list[Record]:
    try:
        data = contents_of(path, _MOST)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as records: {error}") from error
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        message = f"{path}: its last line is torn, and left out; that run is run again"
        warnings.warn(message, UserWarning, stacklevel=4)
    records = []
    for at, line in enumerate(whole.splitlines(), 1):
        record: Any = None
        with suppress(ValueError):
            record = parsed(line)
        if says := wrong_record(record):
            raise ValueError(
                f"{path}:{at} is not a record of a run ({says}): remove the line, "
                "and the run is run again"
            )
        records.append(dict(record))
    return records
