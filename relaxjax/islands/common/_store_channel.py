"""The channel over a store: members, contributions, merges and versions are files.

    run.json    what all islands agree on          relaxjax.islands.common._agreed
    members/    who has joined, beats, has left    relaxjax.islands.common._members
    lease/      who merges                         relaxjax.islands.common._syncer
    offers/     contributions                      relaxjax.islands.common._offers
    state/      the common model, by version       relaxjax.islands.common._common_model
    log/        a line for each merge: the commit  relaxjax.islands.common._log

No server is needed: any island merges while it holds the lease.
"""

import errno
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from relaxjax.islands.carriers._foreign import DamagedFile, is_there, plain
from relaxjax.islands.carriers._store import FILE, Store, probe
from relaxjax.islands.common import _members as members
from relaxjax.islands.common import _offers as offers
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._channel import Fragment, Joined, News, Offer
from relaxjax.islands.common._common_model import CommonModel, Say
from relaxjax.islands.common._files import Arrays
from relaxjax.islands.common._syncer import Syncer

_BEATS = 8  # in the time after which a silent member counts as lost


class StoreChannel:
    """A channel whose carrier is a store, and the syncer beside it.

    Attributes:
      syncer: takes the lease and merges, if its `turn` is called; after `join`.
    """

    syncer: Syncer

    def __init__(
        self,
        store: Store,
        run: Agreed,
        name: str,
        *,
        lost_after: float,
        say: Say,
        details: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._details = {"host": socket.gethostname(), "pid": os.getpid()}
        self._details |= details or {}
        self._store, self._run, self._name = store, run, members.check_name(name)
        self._say, self._clock = say, clock
        self._every = lost_after / _BEATS
        self._watch = members.Watch(store, lost_after, clock)
        self._state = CommonModel(store, run, say)
        self._given: dict[int, int] = {}
        self._beats, self._beaten = 0, float("-inf")

    def join(self, start: list[Arrays]) -> Joined:
        """Probes the store, agrees on the run, and takes an incarnation.

        Raises:
          ValueError: the store does not keep its promises, or the run has begun with
            other settings or another model.
          OSError: the store cannot be written.
        """
        try:
            self._enter(start)
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise OSError(
                error.errno or errno.EIO,
                f"islands: {self._name!r} cannot join the run in {self._store.place}: "
                f"{why}; mend this, and start the island again",
            ) from error
        how = self._store, self._run, self._state, self._watch, self._member
        self.syncer = Syncer(*how, self._say, self._clock)
        fragments = self.state()
        self._beat()
        return Joined(self._member, self._state.version, fragments)

    def _enter(self, start: list[Arrays]) -> None:
        """Writes what a member writes before anybody waits for it."""
        own = f"{self._name}.{socket.gethostname()}.{os.getpid()}"
        probe(self._store, own)
        if others := self._run.agree(self._store):
            self._say(others)
        self._member = members.enter(self._store, self._name, self._details)
        self._state.member = self._member
        self._state.begin(start, str(self._member))

    def offer(self, offer: Offer) -> bool:
        """Contributes; False if the merge is over, or has this contribution."""
        self._state.require_run()
        if offer.version <= self._state.version:
            return False
        try:
            return offers.write(self._store, self._member, offer)
        except FileNotFoundError:  # its folder has been removed
            return False

    def adopt(self) -> News:
        """What is new; beats, and notices a newer incarnation of this island.

        Raises:
          Superseded: there is one.
          RunGone: the folder was removed.
        """
        self._beat()
        self._watch.look()  # again in each turn of the syncer
        for name, why in sorted(self._watch.foreign.items()):
            if name != f"{self._member}.beat":  # its own says more
                self._say(f"{self._store.place}/members/{name} {why}")
        if not self._watch.is_newest(self._member):
            why = self._superseded()
            self._say(why)
            raise members.Superseded(why)
        self._state.catch_up()
        fragments = self._new()
        merged, self._state.merged = self._state.merged, set()
        wanted = self.syncer.wanted()
        return News(self._state.version, fragments, merged, wanted)

    def state(self) -> list[Fragment]:
        """The whole common model; waits for nobody, and needs each fragment.

        Raises:
          DamagedFile: no version of a fragment can be read.
        """
        self._state.catch_up()
        self._new()
        anchors = self._state.anchors
        for number in range(self._run.settings.fragments):
            if number not in anchors:
                self._state.refuse(number)
        return [anchors[number] for number in sorted(anchors)]

    def leave(self) -> None:
        """Says that this member has left, if there is a run to leave."""
        if is_there(self._store, FILE):
            members.leave(self._store, self._member)

    def _new(self) -> list[Fragment]:
        """Fragments that have not been given out in this version.

        Who was left out of a merge gets all that have been merged: what was wrong with
        one fragment of its model is wrong with others as well.
        """
        again, self._state.left_out = self._state.left_out, False
        new = [
            fragment
            for number, fragment in sorted(self._state.anchors.items())
            if fragment.version > (0 if again else self._given.get(number, -1))
        ]
        self._given |= {fragment.number: fragment.version for fragment in new}
        return new

    def _beat(self) -> None:
        now = self._clock()
        if now - self._beaten >= self._every:
            self._state.require_run()
            try:
                members.beat(self._store, self._member, self._beats + 1)
            except DamagedFile as error:
                self._say(f"{error}; the others take this island for lost")
            self._beats, self._beaten = self._beats + 1, now

    def _superseded(self) -> str:
        newer = self._watch.newest_of(self._name)
        who = members.details(self._store, members.Member(self._name, newer))
        host, pid = (plain(str(who.get(key)))[:99] for key in ("host", "pid"))
        where = f" ({host}, process {pid})" if "pid" in who else ""
        return (
            f"islands: incarnation {newer} of {self._name!r}{where} has joined, and "
            f"this is incarnation {self._member.incarnation}: two islands of one name "
            "are one island, and the newer one goes on. Give each island its own name"
        )
