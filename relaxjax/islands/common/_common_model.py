"""The common model as one process knows it: the newest readable version of each part.

    state/00000042.LEASE.TRY.f1.anchor   a of fragment 1 after merge 42
    state/00000042.LEASE.TRY.f1.outer    the outer optimizer's state, for who merges

A record of the log names these files and their digests. Where one cannot be read, or
the line itself, that fragment stays as it is until its next merge, and the file is
named: islands contribute from the newest version that they can read.

Cost: an anchor is read once by each island and kept in memory; the outer state is read
by a new leader alone. `mend` reads all that this process has once more.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from relaxjax.islands.carriers._foreign import DamagedFile, numbered
from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._bounds import MERGES, Before
from relaxjax.islands.common._channel import Fragment
from relaxjax.islands.common._files import Arrays, fingerprint, pack
from relaxjax.islands.common._history import Seen, before_of, seen_in
from relaxjax.islands.common._members import Member
from relaxjax.islands.common._merge import first_outer
from relaxjax.islands.common._still_there import RunGone, require_run
from relaxjax.islands.common._versions import FOLDER, anchor_of, fetched, named

Say = Callable[..., None]
"""Says words, once for each `cause`; without one, once for each words."""


class CommonModel:
    """Versions, anchors and outer states.

    Attributes:
      version: the newest version that was committed; -1 before the run begins.
      anchors: the newest readable anchor of each fragment.
      previous: digest of the newest line of the log.
      merged: versions that have a contribution of `member`, since it was emptied.
      left_out: whether one was left out of a merge, since this was reset.
    """

    def __init__(self, store: Store, run: Agreed, say: Say):
        self._store, self._run, self._say = store, run, say
        self.version, self.previous = -1, ""
        self.anchors: dict[int, Fragment] = {}
        self.merged: set[int] = set()
        self.left_out = False
        self.member: Member | None = None
        self._outers: dict[int, tuple[int, Arrays]] = {}
        self._seen: dict[int, Seen] = {}
        self._lines: dict[int, log.Record] = {}
        self._cause = ""  # why the last contribution of `member` was left out

    def begin(self, start: list[Arrays], own: str) -> None:
        """Commits version 0, unless somebody else has."""
        if log.newest(self._store) >= 0:
            return
        files = {}
        for number, anchor in enumerate(start):
            outer = first_outer(self._run.settings, anchor)
            files[str(number)] = self.write(0, own, number, anchor, outer)
        record = {"version": 0, "contributions": [], "refused": [], "absent": []}
        record |= {"files": files, "leader": own, "lease": 0, "previous": ""}
        if not log.commit(self._store, record):
            self.discard(files)

    def require_run(self) -> None:
        """Raises RunGone if the run is gone; mends or passes over a missing line."""
        try:
            has_line = require_run(self._store, self._run, self.version)
        except RunGone as error:
            self._say(str(error))
            raise
        newest = self.version if has_line else log.newest(self._store)
        if newest > self.version:
            self._note(newest)
            self.version = newest
            self._read_anchors(newest)
        elif not has_line:
            self.mend()

    def catch_up(self) -> None:
        """Reads what was committed since the last call."""
        known = self.version
        newest = log.newest(self._store, known)
        if newest == known:
            self._read_anchors(newest)  # those that could not be read before
            return
        if known < 0:
            for name in log.strange(self._store, newest):
                self._say(
                    f"{self._store.place}/{log.FOLDER}/{name} is no file of a run"
                )
        # Who joins needs the newest records only; who has been here reads them all.
        first = known + 1 if known >= 0 else newest
        for version in range(first, newest + 1):
            self._note(version)
        self._read_anchors(newest)
        self.version = newest

    def refuse(self, number: int) -> NoReturn:
        """Raises DamagedFile, because no version of a fragment can be read."""
        raise DamagedFile(
            f"{self._store.place}/{FOLDER}",
            f"no version of fragment {number} can be read; put its files back from a "
            "copy, or begin a new run in another folder",
        )

    def outer(self, number: int) -> tuple[Arrays, str | None]:
        """The outer state that belongs to an anchor, and why it began anew, if so."""
        anchor = self.anchors[number]
        version, outer = self._outers.get(number, (-1, {}))
        if version == anchor.version:
            return outer, None
        first = first_outer(self._run.settings, anchor.anchor)
        try:
            file = self._files(anchor.version, number)["outer"]
            outer = self._fetched(number, file)
            if _layout(outer) != _layout(first):
                raise DamagedFile(
                    file[0], "it is not the state of this outer optimizer"
                )
        except (DamagedFile, FileNotFoundError) as error:
            self._say(f"{error}; the outer momentum of fragment {number} begins anew")
            return first, str(error)
        return outer, None

    def before(self, version: int) -> Before:
        """What the last merges of a version's fragment had."""
        versions = versions_before(self._run, version)
        for v in [v for v in versions if v not in self._seen]:
            with suppress(DamagedFile, FileNotFoundError):
                self._seen[v] = seen_in(log.read(self._store, v)[0])
        lines = [self._seen[v] for v in versions if v in self._seen]
        return before_of(lines, self._run.settings.fragments)

    def write(
        self, version: int, own: str, number: int, anchor: Arrays, outer: Arrays
    ) -> dict[str, list[str]]:
        """Writes a fragment's files, and returns what a record says of them."""
        files: dict[str, list[str]] = {}
        try:
            for kind, arrays in (("anchor", anchor), ("outer", outer)):
                name = f"{FOLDER}/{version:08d}.{own}.f{number}.{kind}"
                meta = {"version": version, "fragment": number}
                files[kind] = [name, fingerprint(arrays)]
                if not self._store.create(name, pack(meta, arrays)):
                    raise DamagedFile(name, "it is there already")
        except Exception:
            self.discard({str(number): files})
            raise
        return files

    def discard(self, files: dict[str, Any]) -> None:
        """Removes files that no record names."""
        for kinds in files.values():
            for name, _ in kinds.values():
                self._store.delete(name)

    def install(self, fragment: Fragment, outer: Arrays) -> None:
        """Takes over what this process has committed itself."""
        self.anchors[fragment.number] = fragment
        self._outers[fragment.number] = fragment.version, outer
        self._note(fragment.version)
        self.version = fragment.version

    def mend(self) -> None:
        """Reads files of which this process has the arrays; rewrites damaged ones."""
        for number, fragment in self.anchors.items():
            version, outer = self._outers.get(number, (-1, {}))
            held = {"anchor": fragment.anchor}
            held |= {"outer": outer} if version == fragment.version else {}
            for kind, arrays in held.items():
                self._mend(fragment, kind, arrays)
        for version, record in self._lines.items():
            try:
                log.read(self._store, version)
            except (DamagedFile, FileNotFoundError) as error:
                with suppress(IsADirectoryError):
                    if log.write_again(self._store, record, self._run.settings.keep):
                        self._say(f"{error}; it is written again")

    def _mend(self, fragment: Fragment, kind: str, arrays: Arrays) -> None:
        try:
            name, digest = self._files(fragment.version, fragment.number)[kind]
        except (DamagedFile, FileNotFoundError):  # the log's own line
            return
        try:
            self._fetched(fragment.number, [name, digest])
        except (DamagedFile, FileNotFoundError) as error:
            meta = {"version": fragment.version, "fragment": fragment.number}
            if fingerprint(arrays) == digest:
                self._store.replace(name, pack(meta, arrays))
                self._say(f"{error}; it is written again")

    def prune(self) -> None:
        """Removes files that two newer versions have replaced, and old lines."""
        oldest = self.version - 2 * self._run.settings.fragments
        oldest = min([oldest, *(one.version for one in self.anchors.values())])
        for name in self._store.names(FOLDER):
            if any(version < oldest for version in numbered([name.partition(".")[0]])):
                self._store.delete(f"{FOLDER}/{name}")
        log.prune(self._store, self.version)

    def _note(self, version: int) -> None:
        """Reads a record for its digest, and for whether this island is in it."""
        try:
            record, self.previous = log.read(self._store, version)
        except DamagedFile as error:
            self._say(f"{error}; merge {version} is passed over", str(error))
            self.previous = "damaged"
            return
        except FileNotFoundError:  # removed since, while this process slept
            return
        self._seen[version], self._lines[version] = seen_in(record), record
        oldest = version - MERGES * self._run.settings.fragments
        for kept in (self._seen, self._lines):
            for old in [v for v in kept if v < oldest]:
                del kept[old]
        for part in record["contributions"]:
            if self.member == (part["island"], part["incarnation"]):
                self.merged.add(version)
                self._cause = ""
        for part in record.get("left_out", []):
            if self.member == (part["island"], part["incarnation"]):
                self.left_out = True
                self._hear(version, part["cause"], part["why"])

    def _hear(self, version: int, cause: str, why: str) -> None:
        """Says why a contribution of this island was left out, once for each cause."""
        if cause != self._cause:
            self._cause = cause
            self._say(
                f"merge {version} has left out what this island contributed: {why}. It "
                "goes on from the common model"
            )

    def _read_anchors(self, version: int) -> None:
        for number in range(self._run.settings.fragments):
            self._read_anchor(number, self._run.newest(number, version))

    def _read_anchor(self, number: int, version: int) -> None:
        """Reads the anchor of a version; else the newest before it that can be."""
        known = self.anchors.get(number)
        while known is None or version > known.version:
            try:
                record, _ = log.read(self._store, version)
                anchor = anchor_of(self._store, self._run, record, number)
                self.anchors[number] = Fragment(number, version, anchor)
                return
            except FileNotFoundError as error:
                every = self._run.settings.fragments
                if log.newest(self._store, version) >= version + every:
                    return  # a newer one has replaced it: it comes with the next call
                self._say(f"{error.filename} is missing")
            except DamagedFile as error:
                waits = f"fragment {number} waits for its next merge"
                self._say(f"{error}; {waits}", str(error))
            if version == 0:
                return
            version = max(0, version - self._run.settings.fragments)

    def _files(self, version: int, number: int) -> dict[str, list[str]]:
        return named(self._store, log.read(self._store, version)[0], number)

    def _fetched(self, number: int, file: list[str]) -> Arrays:
        return fetched(self._store, self._run, number, file)


def versions_before(run: Agreed, version: int) -> list[int]:
    """The last merges of a version's fragment, newest first."""
    every = run.settings.fragments
    return [v for k in range(1, MERGES + 1) if (v := version - k * every) > 0]


def _layout(arrays: Arrays) -> list[Any]:
    return [(name, x.dtype, x.shape) for name, x in sorted(arrays.items())]
