"""The files that a line of the log names: a fragment's anchor and outer state."""

from relaxjax.islands.carriers._foreign import (
    DamagedFile,
    contents,
    require_pairs,
    shown,
)
from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._files import Arrays, fingerprint, unpack

FOLDER = "state"


def named(store: Store, record: log.Record, number: int) -> dict[str, list[str]]:
    """A fragment's files in a record: anchor and outer, each [file, sha256].

    Raises:
      DamagedFile: the record does not name two files of the folder.
    """
    found = record["files"].get(str(number))
    full = f"{store.place}/{log.file_of(record['version'])}"
    for kind in ("anchor", "outer"):
        pair = found.get(kind) if isinstance(found, dict) else None
        require_pairs(full, f"{kind} of fragment {number}", [pair], str, str)
        folder, _, name = pair[0].partition("/") if pair else ("", "", "")
        if folder != FOLDER or not name or "/" in name or not name.isprintable():
            raise DamagedFile(full, f"{kind} of fragment {number} is {shown(pair)}")
    return found


def fetched(store: Store, run: Agreed, number: int, file: list[str]) -> Arrays:
    """The arrays of one of these files.

    Raises:
      FileNotFoundError: it is not there.
      DamagedFile: it is not what the record names.
    """
    name, digest = file
    full = f"{store.place}/{name}"
    _, arrays = unpack(full, contents(store, name, run.most(number)))
    if fingerprint(arrays) != digest:
        raise DamagedFile(full, "it is not what the log names")
    return arrays


def anchor_of(store: Store, run: Agreed, record: log.Record, number: int) -> Arrays:
    """The anchor of a fragment that a record names; raises what `fetched` does."""
    file = named(store, record, number)["anchor"]
    arrays = fetched(store, run, number, file)
    return run.check(f"{store.place}/{file[0]}", number, arrays, "anchor")
