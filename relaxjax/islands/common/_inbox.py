"""Contributions to the next merge, as a leader reads them: each file once.

A contribution is checked, or refused with a reason, which the leader says once for each
member and cause: reasons that differ in their numbers alone are one cause. It is said
again after a contribution of that member was merged.

Members that are alive and whose contribution is damaged, has no weight, or starts from
an older base, count for the quorum: they contribute once to a merge, and everybody
would wait for them in vain.
"""

import math
import re
from collections.abc import Callable, Iterable

from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common import _offers as offers
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._channel import Fragment
from relaxjax.islands.common._files import DamagedFile
from relaxjax.islands.common._members import Member, Watch
from relaxjax.islands.common._offers import Checked, LeftOut, not_finite

_NUMBER = re.compile(r"\d[\d.e+-]*")


class Inbox:
    """What was offered for the next merge.

    Attributes:
      refused: why files are not merged, by name.
      ahead: by file, members that have a newer version than this process could read.
      behind: whether somebody has an older version, and could not read the newest.
    """

    def __init__(
        self, store: Store, run: Agreed, watch: Watch, say: Callable[[str], None]
    ):
        self._store, self._run, self._watch, self._say = store, run, watch, say
        self._checked: dict[str, Checked] = {}
        self._told: set[tuple[str, str]] = set()
        self._in_vain: set[str] = set()
        self.refused: dict[str, str] = {}
        self.ahead: dict[str, Member] = {}
        self.behind = False

    def ready(self, version: int, base: Fragment) -> list[Checked]:
        """Contributions that may be merged, by name."""
        listed = self._store.names(offers.folder_of(version))
        files = [f"{offers.folder_of(version)}/{name}" for name in listed]
        self._checked = {f: c for f, c in self._checked.items() if f in files}
        self.refused = {f: why for f, why in self.refused.items() if f in files}
        self.ahead = {f: m for f, m in self.ahead.items() if f in files}
        self._in_vain &= set(files)
        for member in filter(None, map(Member.parse, listed)):
            self._watch.saw(member)
        for file in files:
            if file not in self.refused and (why := self._why_not(file, version, base)):
                self.refused[file] = why
                self._checked.pop(file, None)
                self._name(file, _NUMBER.sub("#", why), f"is refused: {why}")
        ready = [self._checked[file] for file in sorted(self._checked)]
        for checked in ready:
            if math.isinf(checked.length):
                self._name_left_out(checked.file, "finite", not_finite(checked))
        return ready

    def present(self, ready: list[Checked]) -> int:
        """How many have contributed, as far as the quorum goes."""
        members = filter(None, (Member.parse(_base(file)) for file in self._in_vain))
        return len(ready) + sum(map(self._watch.is_alive, members))

    def missing(self, ready: list[Checked]) -> list[str]:
        """Members that are alive and have not contributed in any way."""
        refused = {Member.parse(_base(file)) for file in self.refused}
        here = {checked.member for checked in ready} | refused
        return [str(m) for m in self._watch.alive() if m not in here]

    def not_merged(self, left_out: Iterable[LeftOut]) -> list[list[str]]:
        """Each file that a merge does not have, and why."""
        left = {one.checked.file: one.why for one in left_out}
        return sorted(map(list, (self.refused | left).items()))

    def merged(self, kept: Iterable[Checked], left_out: Iterable[LeftOut]) -> None:
        """Names what was left out of a merge that is committed."""
        for one in left_out:
            self._name_left_out(one.checked.file, one.cause, one.why)
        fine = {_base(checked.file) for checked in kept}
        self._told = {(name, cause) for name, cause in self._told if name not in fine}

    def _why_not(self, file: str, version: int, base: Fragment) -> str | None:
        try:
            if file not in self._checked:
                how = self._store, self._run, version, _base(file), base.anchor
                self._checked[file] = offers.read(*how)
            checked = self._checked[file]
            is_ahead = checked.offer.base > base.version
            if is_ahead and self._watch.is_alive(checked.member):
                self.ahead[file] = checked.member
            if checked.offer.base < base.version:
                self._in_vain.add(file)
                self.behind = True
            if why := offers.too_light(checked.offer):
                self._in_vain.add(file)
                return why
            return offers.why_not(checked, base.version, self._watch)
        except DamagedFile as error:
            self._in_vain.add(file)
            return str(error)

    def _name_left_out(self, file: str, cause: str, why: str) -> None:
        self._name(file, cause, f"is left out: {why}")

    def _name(self, file: str, cause: str, words: str) -> None:
        if (_base(file), cause) not in self._told:
            self._told.add((_base(file), cause))
            self._say(f"{self._store.place}/{file} {words}")


def _base(file: str) -> str:
    return file.rpartition("/")[2]
