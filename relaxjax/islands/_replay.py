"""Merges again what a run has kept, and compares digests, line by line.

A run with `keep=True` has all contributions and versions in its folder. Each line of
the log is checked by its own digest and by the next line's, each contribution by the
digest that the line names, and the merge of the contributions, by the same function
that the leader called, must have the digest of the anchor that was published.

On another processor or version of XLA the last bits may differ: then the largest
difference is stated.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from relaxjax.islands import _log as log
from relaxjax.islands import _offers as offers
from relaxjax.islands._files import Arrays, DamagedFile, fingerprint, unpack
from relaxjax.islands._merge import first_outer, merge
from relaxjax.islands._run import Run
from relaxjax.islands._store import Store


class Replayed(NamedTuple):
    """One merge, made again.

    Attributes:
      version: the merge.
      contributors: names of islands with their incarnations.
      is_equal: whether the anchor has the digest that the log names.
      difference: largest absolute difference to the anchor that was published.
      fault: what is wrong with the line or with what it names; "" if nothing is.
    """

    version: int
    contributors: list[str]
    is_equal: bool
    difference: float
    fault: str


def replay(store: Store) -> Iterator[Replayed]:
    """Merges every version again, from the first; stops at the first fault.

    Raises:
      ValueError: the run has not kept its contributions.
      DamagedFile: `run.json`, or the first line of the log.
      FileNotFoundError: there is no run.
    """
    run = Run.read(store)
    if not run.settings.keep:
        raise ValueError(
            f"islands: the run in {store.place} has not kept its contributions: join "
            "with keep=True"
        )
    first, previous = log.read(store, 0)
    anchors = {int(p): _published(store, files) for p, files in first["files"].items()}
    outers = {p: first_outer(run.settings, a) for p, a in anchors.items()}
    for version in range(1, log.newest(store) + 1):
        try:
            record, digest = log.read(store, version)
            _require(store, record, previous)
            merged, replayed = _again(store, run, record, anchors, outers)
        except (DamagedFile, FileNotFoundError) as error:
            yield Replayed(version, [], False, float("inf"), str(error))
            return
        number, previous = run.fragment_of(version), digest
        anchors[number], outers[number] = merged.anchor, merged.outer
        yield replayed


def _again(store: Store, run: Run, record: Any, anchors: Any, outers: Any) -> Any:
    version = record["version"]
    number = run.fragment_of(version)
    parts, names = [], []
    for said in record["contributions"]:
        name = str(said["file"]).rpartition("/")[2]
        checked = offers.read(store, run, version, name, anchors[number])
        if checked.record(said["weight"]) != said:
            raise DamagedFile(
                f"{store.place}/{log.file_of(version)}",
                f"{checked.file} is not what the line says of it",
            )
        parts.append(checked.part())
        names.append(str(checked.member))
    settings, files = run.settings, record["files"][str(number)]
    outer = outers[number]
    if record.get("reset"):
        outer = first_outer(settings, anchors[number])
    merged = merge(settings, anchors[number], outer, parts)
    published = _published(store, record["files"][str(number)])
    far = [np.abs(merged.anchor[k] - x).max(initial=0) for k, x in published.items()]
    is_equal = fingerprint(merged.anchor) == files["anchor"][1]
    return merged, Replayed(version, names, is_equal, float(max(far)), "")


def _published(store: Store, files: Any) -> Arrays:
    name, digest = files["anchor"]
    _, arrays = unpack(f"{store.place}/{name}", store.read(name))
    if fingerprint(arrays) != digest:
        raise DamagedFile(f"{store.place}/{name}", "it is not what the log names")
    return arrays


def _require(store: Store, record: Any, previous: str) -> None:
    if record["previous"] != previous:
        raise DamagedFile(
            f"{store.place}/{log.file_of(record['version'] - 1)}",
            f"the line after it, {record['version']}, names another digest",
        )
