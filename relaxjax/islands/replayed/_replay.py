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
    again = _Again(store, run)
    for version in range(1, log.newest(store) + 1):
        try:
            replayed = again.merged(version)
        except (DamagedFile, FileNotFoundError) as error:
            yield Replayed(version, [], False, float("inf"), str(error))
            return
        yield replayed


class _Again:
    """The merges of a log, each made again from those before it."""

    def __init__(self, store: Store, run: Agreed):
        self._store, self._run = store, run
        first, self._previous = log.read(store, 0)
        self._seen: dict[int, Seen] = {}
        self._known: dict[int, tuple[Fragment, Arrays]] = {}
        for p in range(run.settings.fragments):
            anchor = anchor_of(store, run, first, p)
            self._known[p] = Fragment(p, 0, anchor), first_outer(run.settings, anchor)

    def merged(self, version: int) -> Replayed:
        """The next merge, and how it compares."""
        record, digest = log.read(self._store, version)
        if record["previous"] != self._previous:
            why = f"the line after it, {version}, names another digest"
            raise self._damaged(version - 1, why)
        number = self._run.fragment_of(version)
        fragment, outer = self._known[number]
        if record.get("reset"):
            outer = first_outer(self._run.settings, fragment.anchor)
        said = [*record["contributions"], *record.get("left_out", [])]
        ready = [self._offered(version, part, fragment) for part in said]
        if "bounds" in record:
            merged = self._decided(record, fragment, outer, ready)
        else:  # of a version of relaxjax that merged all that it had
            parts = [checked.part() for checked in ready]
            merged = merge(self._run.settings, fragment.anchor, outer, parts)
        there = anchor_of(self._store, self._run, record, number)
        far = [np.abs(merged.anchor[k] - x).max(initial=0) for k, x in there.items()]
        _, named_digest = named(self._store, record, number)["anchor"]
        is_equal = fingerprint(merged.anchor) == named_digest
        names = [str(one.member) for one in ready[: len(record["contributions"])]]
        self._previous, self._seen[version] = digest, seen_in(record)
        self._known[number] = Fragment(number, version, merged.anchor), merged.outer
        return Replayed(version, names, is_equal, float(max(far)), "")

    def _offered(self, version: int, said: Any, fragment: Fragment) -> Checked:
        """A contribution, if it is what a line says of it, with the line's length."""
        name = str(said["file"]).rpartition("/")[2]
        checked = offers.read(self._store, self._run, version, name, fragment.anchor)
        length = said.get("length", checked.length)
        length = math.inf if length is None else length
        if math.isclose(length, checked.length, rel_tol=_ROUNDING):
            checked = checked._replace(length=length)
        expected = checked.record(said["weight"])
        is_inf = math.isinf(length)
        expected["length"] = said.get("length") if is_inf else checked.length
        if "length" not in said:  # as in lines of older versions of relaxjax
            del expected["length"]
        if expected != {k: x for k, x in said.items() if k not in ("cause", "why")}:
            why = f"{checked.file} is not what the line says of it"
            raise self._damaged(version, why)
        return checked

    def _decided(
        self, record: Any, fragment: Fragment, outer: Arrays, ready: list[Checked]
    ) -> Merged:
        """What the decision comes to, if it is the one of the line."""
        version, bounds = record["version"], record["bounds"]
        lines = [self._seen[v] for v in versions_before(self._run, version)]
        before = before_of(lines, self._run.settings.fragments)
        ready = sorted(ready, key=lambda checked: checked.file)
        rule = bounds.get("rule", 1)
        decided = decide(self._run, fragment, outer, ready, before, rule)
        for key in ("contributions", "left_out"):
            here = [said["file"] for said in decided.record()[key]]
            there = [said["file"] for said in record[key]]
            if here != there:
                why = f"its {key} are {there}, and follow as {here}"
                raise self._damaged(version, why)
        if not _same(decided.bounds.record(), bounds):
            why = f"its bounds are {bounds}, and follow as {decided.bounds}"
            raise self._damaged(version, why)
        return decided.merged

    def _damaged(self, version: int, why: str) -> DamagedFile:
        return DamagedFile(f"{self._store.place}/{log.file_of(version)}", why)


def _same(here: dict[str, Any], there: dict[str, Any]) -> bool:
    """Whether bounds agree; |a| of a fragment may differ between processors."""
    length = there.get("length")
    is_close = isinstance(length, float) and math.isclose(
        here["length"], length, rel_tol=_ROUNDING
    )
    if here.get("still") and is_close:
        here = {**here, "length": length}
    return here == there
