"""Merges again what a run has kept, and compares digests, line by line.

A run with `keep=True` has all contributions and versions in its folder. Each line of
the log is checked by its own digest and by the next line's, each contribution by the
digest that the line names, and the merge of the contributions, by the same function
that the leader called, must have the digest of the anchor that was published.

On another processor or version of XLA the last bits may differ: then the largest
difference is stated.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from relaxjax.islands.carriers._foreign import DamagedFile
from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _offers as offers
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._bounds import Before
from relaxjax.islands.common._channel import Fragment
from relaxjax.islands.common._common_model import versions_before
from relaxjax.islands.common._files import Arrays, fingerprint
from relaxjax.islands.common._history import Seen, before_of, seen_in
from relaxjax.islands.common._merge import Merged, first_outer, merge
from relaxjax.islands.common._offers import Checked
from relaxjax.islands.common._round import decide
from relaxjax.islands.common._versions import anchor_of, named

_ROUNDING = 1e-4  # between lengths of two processors, of which lines have six digits


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
    run = Agreed.read(store)
    if not run.settings.keep:
        raise ValueError(
            f"islands: the run in {store.place} has not kept its contributions: join "
            "with keep=True"
        )
    first, previous = log.read(store, 0)
    known: dict[int, tuple[Fragment, Arrays]] = {}
    for p in range(run.settings.fragments):
        anchor = anchor_of(store, run, first, p)
        known[p] = Fragment(p, 0, anchor), first_outer(run.settings, anchor)
    seen: dict[int, Seen] = {}
    for version in range(1, log.newest(store) + 1):
        try:
            record, digest = log.read(store, version)
            _require(store, record, previous)
            lines = [seen[v] for v in versions_before(run, version)]
            before = before_of(lines, run.settings.fragments)
            fragment, outer, replayed = _again(store, run, record, known, before)
        except (DamagedFile, FileNotFoundError) as error:
            yield Replayed(version, [], False, float("inf"), str(error))
            return
        previous, seen[version] = digest, seen_in(record)
        known[fragment.number] = fragment, outer
        yield replayed


def _again(
    store: Store,
    run: Agreed,
    record: Any,
    known: dict[int, tuple[Fragment, Arrays]],
    before: Before,
) -> tuple[Fragment, Arrays, Replayed]:
    """The fragment after a merge, its outer state, and how both compare."""
    version = record["version"]
    number = run.fragment_of(version)
    fragment, outer = known[number]
    if record.get("reset"):
        outer = first_outer(run.settings, fragment.anchor)
    said = [*record["contributions"], *record.get("left_out", [])]
    ready = [_offered(store, run, version, part, fragment) for part in said]
    if "bounds" in record:
        merged = _decided(store, run, record, fragment, outer, ready, before)
    else:  # of a version of relaxjax that merged all that it had
        parts = [checked.part() for checked in ready]
        merged = merge(run.settings, fragment.anchor, outer, parts)
    published = anchor_of(store, run, record, number)
    far = [np.abs(merged.anchor[k] - x).max(initial=0) for k, x in published.items()]
    _, digest = named(store, record, number)["anchor"]
    is_equal = fingerprint(merged.anchor) == digest
    names = [str(checked.member) for checked in ready[: len(record["contributions"])]]
    again = Replayed(version, names, is_equal, float(max(far)), "")
    return Fragment(number, version, merged.anchor), merged.outer, again


def _offered(
    store: Store, run: Agreed, version: int, said: Any, fragment: Fragment
) -> Checked:
    """A contribution, if it is what a line says of it, with the length of the line."""
    name = str(said["file"]).rpartition("/")[2]
    checked = offers.read(store, run, version, name, fragment.anchor)
    length = said.get("length", checked.length)
    length = math.inf if length is None else length
    if math.isclose(length, checked.length, rel_tol=_ROUNDING):
        checked = checked._replace(length=length)
    expected = checked.record(said["weight"])
    expected["length"] = said.get("length") if math.isinf(length) else checked.length
    if "length" not in said:  # as in lines of older versions of relaxjax
        del expected["length"]
    if expected != {k: x for k, x in said.items() if k not in ("cause", "why")}:
        raise DamagedFile(
            f"{store.place}/{log.file_of(version)}",
            f"{checked.file} is not what the line says of it",
        )
    return checked


def _decided(
    store: Store,
    run: Agreed,
    record: Any,
    fragment: Fragment,
    outer: Arrays,
    ready: list[Checked],
    before: Before,
) -> Merged:
    """What the decision comes to, if it is the one of the line."""
    ready = sorted(ready, key=lambda checked: checked.file)
    rule = record["bounds"].get("rule", 1)
    decided = decide(run, fragment, outer, ready, before, rule)
    for key in ("contributions", "left_out"):
        here = [said["file"] for said in decided.record()[key]]
        there = [said["file"] for said in record[key]]
        if here != there:
            raise DamagedFile(
                f"{store.place}/{log.file_of(record['version'])}",
                f"its {key} are {there}, and follow as {here}",
            )
    if not _same(decided.bounds.record(), record["bounds"]):
        raise DamagedFile(
            f"{store.place}/{log.file_of(record['version'])}",
            f"its bounds are {record['bounds']}, and follow as {decided.bounds}",
        )
    return decided.merged


def _same(here: dict[str, Any], there: dict[str, Any]) -> bool:
    """Whether bounds agree; |a| of a fragment may differ between processors."""
    length = there.get("length")
    is_close = isinstance(length, float) and math.isclose(
        here["length"], length, rel_tol=_ROUNDING
    )
    if here.get("still") and is_close:
        here = {**here, "length": length}
    return here == there


def _require(store: Store, record: Any, previous: str) -> None:
    if record["previous"] != previous:
        raise DamagedFile(
            f"{store.place}/{log.file_of(record['version'] - 1)}",
            f"the line after it, {record['version']}, names another digest",
        )
