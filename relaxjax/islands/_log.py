"""The log of merges: a file with one line of JSON for each version.

    log/00000042    merge 42, created if absent: that is the commit

All that a version names is written before its line, and the line before anybody takes
the version over. Of two leaders that would commit one version, one wins, and the other
starts again from what was committed. Each line holds the digest of the line before it,
so that a changed line is found by its own digest or by the next one's.

`cat DIR/log/*` is a file of JSON lines. A line has:

    version, fragment      which merge it is
    leader, lease          who has merged
    contributions          for each: island, incarnation, base (the version of the
                           fragment that it started from), tokens, steps, weight,
                           sha256, step (its own), adopted ([version, step] since its
                           last contribution that it knew to be merged), joined (at
                           which version), dropped (tokens that were never merged),
                           length (of its move), file
    left_out               the same for each that was offered in time and is out of
                           bounds, with cause and why
    bounds                 what decides that (`relaxjax.islands._bounds`); lines of
                           older versions of relaxjax have neither it nor lengths
    refused                [file, why] of contributions that were not merged
    absent                 members that were alive and have not contributed
    files                  by fragment: anchor and outer, each [file, sha256]
    reset                  why the outer momentum began anew; or null
    previous               digest of the line before
    time                   by the leader's clock; nothing depends on it
"""

from typing import Any

from relaxjax.islands._files import DamagedFile, seal, sha256, unseal
from relaxjax.islands._store import Store

FOLDER = "log"
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "version": int,
    "contributions": list,
    "refused": list,
    "absent": list,
    "files": dict,
    "leader": str,
    "lease": int,
    "previous": str,
}
_CONTRIBUTION: dict[str, type | tuple[type, ...]] = {
    "island": str,
    "incarnation": int,
    "base": int,
    "tokens": (int, float),
    "steps": int,
    "weight": float,
    "sha256": str,
    "step": int,
    "adopted": list,
}

Record = dict[str, Any]


def file_of(version: int) -> str:
    """The name of a version's line."""
    return f"{FOLDER}/{version:08d}"


def commit(store: Store, record: Record) -> bool:
    """Commits a version; False if somebody else has."""
    return store.create(file_of(record["version"]), seal(record))


def read(store: Store, version: int) -> tuple[Record, str]:
    """A version's record, and the digest of its line.

    Raises:
      FileNotFoundError: it was not committed.
      DamagedFile: the line is not one.
    """
    name = file_of(version)
    data, full = store.read(name), f"{store.place}/{name}"
    record = unseal(full, data)
    _require(full, record, _FIELDS)
    for contribution in record["contributions"]:
        if not isinstance(contribution, dict):
            raise DamagedFile(full, "a contribution is not an object")
        _require(full, contribution, _CONTRIBUTION)
    if record["version"] != version:
        raise DamagedFile(full, f"its version is {record['version']}")
    return record, sha256(data)


def newest(store: Store, known: int = -1) -> int:
    """The newest version, from one that is known; -1 if nothing was committed."""
    if known < 0:
        listed = [int(name) for name in store.names(FOLDER) if _is_version(name)]
        return max(listed, default=-1)
    while True:
        try:
            store.read(file_of(known + 1))
        except FileNotFoundError:
            return known
        known += 1


def _is_version(name: str) -> bool:
    return len(name) >= 8 and name.isdigit()


def _require(name: str, record: Record, fields: Any) -> None:
    for key, kind in fields.items():
        value = record.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DamagedFile(name, f"{key} is {value!r}")
