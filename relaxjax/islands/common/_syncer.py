"""Who merges: the holder of the lease, which may be any island.

    lease/00000007    lease 7 is held by a member (a record); created if absent

Whoever sees that the holder has left, was superseded, or that its heartbeat has not
moved for `lost_after` seconds of its own clock, creates the next lease: one wins. A
leader that wakes up stale finds a newer lease and steps down; if it commits before it
has looked, the version exists already or it does not. `relaxjax.islands.common._log`
lets one commit win, and either is a merge of valid contributions.

A merge comes about when all members that are alive have contributed, or `grace` seconds
after the quorum was reached. Contributors stand in sorted order.

Cost of a turn: a list of members, a heartbeat from each, a list of contributions. A
leader that waits reads the anchors, the outer states and the last lines again, to mend
them: after `lost_after` seconds, and then after twice as long each time, until a merge.
"""

import errno
import time
from collections.abc import Callable
from typing import Any

from relaxjax.islands.carriers._foreign import SMALL, DamagedFile, contents, numbered
from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _offers as offers
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._channel import Fragment
from relaxjax.islands.common._common_model import CommonModel, Say
from relaxjax.islands.common._files import seal, unseal
from relaxjax.islands.common._inbox import Inbox
from relaxjax.islands.common._members import Member, Watch
from relaxjax.islands.common._offers import Checked
from relaxjax.islands.common._round import decide

LEASES = "lease"
_FULL = errno.ENOSPC, errno.EDQUOT


class Syncer:
    """Takes the lease where it is free, and merges while it holds it.

    Attributes:
      lease: the number of the lease that this process holds; None if it holds none.
    """

    def __init__(
        self,
        store: Store,
        run: Agreed,
        state: CommonModel,
        watch: Watch,
        member: Member,
        say: Say,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._store, self._run, self._state = store, run, state
        self._watch, self._member, self._say, self._clock = watch, member, say, clock
        self.lease: int | None = None
        self._quorum_since: tuple[int, float] | None = None
        self._inbox = Inbox(store, run, watch, say)
        self._tries = 0
        self._few_since: float | None = None
        self._rest()

    def turn(self) -> bool:
        """One look around, which merges if it is time to; whether it has."""
        self._watch.look()
        number, holder = newest_lease(self._store, self._say)
        if holder != self._member:
            if self.lease is not None:
                self._say(f"lease {self.lease} is over: {holder} holds {number}")
            self.lease = None
            if holder is None or not self._watch.is_alive(holder):
                self._take(number + 1, self._member)
            return False
        self.lease = number
        self._state.catch_up()
        return self._lead()

    def wanted(self) -> bool:
        """Whether the next merge has its quorum, as far as names of files say."""
        listed = self._store.names(offers.folder_of(self._state.version + 1))
        return len(listed) >= self._run.settings.quorum

    def is_hopeless(self) -> bool:
        """Whether so many have left that no merge will have its quorum.

        Who is lost may come again, and so may who has left, for as long as it takes to
        be lost. A run that has not yet been joined by a quorum is waited for.
        """
        now, quorum = self._clock(), self._run.settings.quorum
        if not self._watch.staying() < quorum <= len(self._watch.newest()):
            self._few_since = None
            return False
        self._few_since = now if self._few_since is None else self._few_since
        return now - self._few_since > self._watch.lost_after

    def _take(self, number: int, holder: Member) -> None:
        """Creates the next lease, for this member or one that is better placed."""
        self._state.require_run()
        listed = numbered(self._store.names(LEASES))
        while number in listed:  # a foreign file
            number += 1
        record = seal({"holder": str(holder)})
        if self._store.create(f"{LEASES}/{number:08d}", record):
            self.lease = number if holder == self._member else None
            for old, name in listed.items():
                if old < number - 1:
                    self._store.delete(f"{LEASES}/{name}")

    def _lead(self) -> bool:
        version = self._state.version + 1
        number = self._run.fragment_of(version)
        fragment = self._state.anchors.get(number)
        if fragment is None:
            self._state.refuse(number)
        ready = self._inbox.ready(version, fragment)
        if self.lease is not None and self._inbox.ahead:
            holder = min(self._inbox.ahead.values())
            self._say(f"{holder} can read a newer version, and takes the lease")
            self._take(self.lease + 1, holder)
            return False
        if self._inbox.behind:
            self._inbox.behind = False
            self._state.mend()
        if not self._is_time(version, ready):
            self._mend()
            return False
        return self._merge(version, fragment, ready)

    def _is_time(self, version: int, ready: list[Checked]) -> bool:
        if self._inbox.present(ready) < self._run.settings.quorum:
            return False
        if self._quorum_since is None or self._quorum_since[0] != version:
            self._quorum_since = version, self._clock()
        waited = self._clock() - self._quorum_since[1]
        return not self._inbox.missing(ready) or waited >= self._run.settings.grace

    def _mend(self) -> None:
        """While nothing comes, ever more rarely: others may not be able to read."""
        if self._clock() - self._mended > self._patience:
            self._mended, self._patience = self._clock(), 2 * self._patience
            self._state.mend()

    def _rest(self) -> None:
        """Nothing needs mending for a while."""
        self._mended, self._patience = self._clock(), self._watch.lost_after

    def _merge(self, version: int, fragment: Fragment, ready: list[Checked]) -> bool:
        outer, reset = self._state.outer(fragment.number)
        before = self._state.before(version)
        self._state.require_run()
        if self._state.version != version - 1:
            return False
        decided = decide(self._run, fragment, outer, ready, before)
        merged = decided.merged
        self._tries += 1
        own, number = f"{self.lease:06d}.{self._tries}", fragment.number
        files = self._state.write(version, own, number, merged.anchor, merged.outer)
        record: dict[str, Any] = {
            "version": version,
            "fragment": number,
            "leader": str(self._member),
            "lease": self.lease,
            **decided.record(),
            "refused": self._inbox.not_merged(decided.left_out),
            "absent": self._inbox.missing(ready),
            "files": {str(number): files},
            "reset": reset,
            "previous": self._state.previous,
            "time": time.time(),
        }
        try:
            won = log.commit(self._store, record)
        except OSError as error:  # else it may be made yet, and names these files
            if error.errno in _FULL and log.newest(self._store, version - 1) < version:
                self._state.discard({str(number): files})
            raise
        if not won:
            self._state.discard({str(number): files})
            self._say(f"merge {version} was committed by another leader")
            return False
        self._inbox.merged(decided.kept, decided.left_out)
        self._rest()
        self._state.install(Fragment(number, version, merged.anchor), merged.outer)
        if not self._run.settings.keep:
            self._state.prune()
            offers.prune(self._store, version - 1)
        return True


def newest_lease(store: Store, say: Say) -> tuple[int, Member | None]:
    """The newest lease and its holder; None if nobody is or nobody can be read.

    A damaged file is a lease if the lease before it is there, which its holder keeps.
    """
    names = store.names(LEASES)
    listed = numbered(names)
    for name in set(names) - set(listed.values()):
        say(f"{store.place}/{LEASES}/{name} is no file of a run")
    for number in sorted(listed, reverse=True):
        full = f"{store.place}/{LEASES}/{listed[number]}"
        try:
            record = unseal(full, contents(store, f"{LEASES}/{listed[number]}", SMALL))
            return number, Member.parse(str(record.get("holder")))
        except (DamagedFile, FileNotFoundError) as error:
            if number == 1 or number - 1 in listed:
                say(f"{error}; the next lease is free")
                return number, None
            say(f"{error}; it is no lease")
    return 0, None
