"""The log of merges: a file with one line of JSON for each version.

    log/00000042    merge 42, created if absent: that is the commit

All that a version names is written before its line, and the line before anybody takes
the version over. Of two leaders that would commit one version, one wins, and the other
starts again from what was committed. Each line holds the digest of the line before it,
so that a changed line is found by its own digest or by the next one's.

A run that keeps nothing to replay removes its older lines: `KEPT` remain, and up to
`_SWEEP` more. A number that is free again must not be taken by a leader that has slept
since: a commit counts only if the line before it is there.

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
    bounds                 what decides that (`common._bounds`): rule, limit, cap, both
                           references, still, and members: [version, length, weight] of
                           what was last merged of each. Lines of older versions of
                           relaxjax have no rule, or neither bounds nor lengths
    refused                [file, why] of contributions that were not merged
    absent                 members that were alive and have not contributed
    files                  by fragment: anchor and outer, each [file, sha256]
    reset                  why the outer momentum began anew; or null
    previous               digest of the line before; or "damaged"
    time                   by the leader's clock; nothing depends on it
"""

from typing import Any

from relaxjax.islands.carriers import _foreign as foreign
from relaxjax.islands.carriers._foreign import DamagedFile, Kind
from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common._files import seal, sha256, unseal

FOLDER = "log"
KEPT, _SWEEP = 1024, 256
_FIELDS: dict[str, Kind] = {
    "version": int,
    "contributions": list,
    "refused": list,
    "absent": list,
    "files": dict,
    "leader": str,
    "lease": int,
    "previous": str,
}
_CONTRIBUTION: dict[str, Kind] = {
    "island": str,
    "incarnation": int,
    "base": int,
    "tokens": (int, float),
    "steps": int,
    "sha256": str,
    "file": str,
    "step": int,
    "adopted": list,
    "joined": int,
}
_SINCE: dict[str, Kind] = {"left_out": list, "time": float}
"""Fields that version 0 or an older relaxjax does not write."""
_LEFT_OUT: dict[str, Kind] = {
    "island": str,
    "incarnation": int,
    "weight": float,
    "file": str,
    "cause": str,
    "why": str,
}

Record = dict[str, Any]


def file_of(version: int) -> str:
    """The name of a version's line."""
    return f"{FOLDER}/{version:08d}"


def commit(store: Store, record: Record) -> bool:
    """Commits a version; False if somebody else has."""
    name, version = file_of(record["version"]), record["version"]
    won = store.create(name, seal(record))
    if won and version and not foreign.is_there(store, file_of(version - 1)):
        store.delete(name)
        return False
    return won


def prune(store: Store, version: int) -> None:
    """Removes lines that are older than the last `KEPT`, now and then."""
    if version % _SWEEP:
        return
    for old, name in foreign.numbered(store.names(FOLDER)).items():
        if old <= version - KEPT:
            store.delete(f"{FOLDER}/{name}")


def write_again(store: Store, record: Record, keep: bool) -> bool:
    """Writes a line that was committed, and is damaged, as it was.

    Not one that was removed by others, who went on while this process slept: behind it
    there would be a number that is free again. So it looks before, and after.

    Args:
      store: the store.
      record: the line.
      keep: whether the run keeps all lines.

    Returns:
      Whether it was written.
    """
    version = record["version"]
    if not keep and version <= newest(store) - KEPT:
        return False
    store.replace(file_of(version), seal(record))
    if not keep and version <= newest(store) - KEPT:
        store.delete(file_of(version))
        return False
    return True


def read(store: Store, version: int) -> tuple[Record, str]:
    """A version's record, and the digest of its line.

    Raises:
      FileNotFoundError: it was not committed.
      DamagedFile: the line is not one.
    """
    name = file_of(version)
    data, full = foreign.contents(store, name, foreign.LINE), f"{store.place}/{name}"
    record = unseal(full, data)
    foreign.require(full, record, _FIELDS)
    foreign.require_pairs(full, "refused", record["refused"], str, str)
    foreign.require(full, {"left_out": [], "time": 0.0, **record}, _SINCE)
    for contribution in record["contributions"]:
        foreign.require(full, contribution, _CONTRIBUTION)
        foreign.require_pairs(full, "adopted", contribution["adopted"], int, int)
        if not _is_measure(contribution.get("weight")):
            raise DamagedFile(full, "a weight is no number")
        if not _is_measure(contribution.get("length", 0.0)):
            raise DamagedFile(full, "a length is no number")
    for left_out in record.get("left_out", []):
        foreign.require(full, left_out, _LEFT_OUT)
    _require_bounds(full, record.get("bounds", {}))
    for one in record["absent"]:
        foreign.require(full, {"absent": one}, {"absent": str})
    if record["version"] != version:
        raise DamagedFile(full, f"its version is {record['version']}")
    return record, sha256(data)


def _require_bounds(full: str, bounds: Any) -> None:
    """What later merges and a replay take from bounds has the right types."""
    foreign.require(full, {"bounds": bounds}, {"bounds": dict})
    foreign.require(
        full, {"rule": 1, "members": {}, **bounds}, {"rule": int, "members": dict}
    )
    for known in bounds.get("members", {}).values():
        is_known = isinstance(known, list) and len(known) == 3
        if not is_known or not all(map(_is_measure, known[1:])):
            raise DamagedFile(full, "a member's last contribution is no number")
        foreign.require(full, {"version": known[0]}, {"version": int})


def _is_measure(value: Any) -> bool:
    """Whether a length or a weight may be this; weights go beyond 2^53."""
    return isinstance(value, float) and value >= 0


def newest(store: Store, known: int = -1) -> int:
    """The newest version, from one that is known; -1 if nothing was committed.

    Who knows none takes the newest line that can be read, and those right behind it: a
    damaged line was a version all the same. Behind a gap there is no version, whatever
    the name of a foreign file is.
    """
    if known < 0:
        known, listed = -1, foreign.numbered(store.names(FOLDER))
        for version in sorted(listed, reverse=True):
            if _is_line(store, version):
                known = version
                break
        while known + 1 in listed:
            known += 1
        return known
    while foreign.is_there(store, file_of(known + 1)):
        known += 1
    return known


def kept(store: Store) -> range:
    """The merges whose lines are there: the oldest may have been removed."""
    oldest = min((v for v in foreign.numbered(store.names(FOLDER)) if v > 0), default=1)
    return range(oldest, newest(store) + 1)


def strange(store: Store, version: int) -> list[str]:
    """Names in the folder that are of no version up to this one."""
    names = store.names(FOLDER)
    ours = {name for v, name in foreign.numbered(names).items() if v <= version}
    return [name for name in names if name not in ours]


def _is_line(store: Store, version: int) -> bool:
    try:
        read(store, version)
    except (DamagedFile, FileNotFoundError):
        return False
    return True
