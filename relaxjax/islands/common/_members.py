"""Who belongs to a run: names, incarnations, heartbeats, and who has left.

    members/NAME.000007          incarnation 7 of NAME has joined (a record)
    members/NAME.000007.beat     a count that grows
    members/NAME.000007.left     it has left, or its supervisor has seen it end

An incarnation is the number after the highest there is, and is taken by creating its
file: of two processes with one name the second is the newer, and the older one learns
that it is superseded. Clocks of different machines are never compared: an observer
takes the time, by its own clock, since a count last changed.
"""

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from relaxjax.islands.carriers._foreign import SMALL, DamagedFile, contents
from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common._files import seal, unseal

FOLDER = "members"
SUPERSEDED = 76  # exit status
KEPT = 16  # records of each name
_FILE = re.compile(
    r"([A-Za-z0-9_-]{1,64})\.([0-9]{6}|[1-9][0-9]{6,14})(\.beat|\.left|)"
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Member(NamedTuple):
    """A process that has joined under a name."""

    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name}.{self.incarnation:06d}"

    @classmethod
    def parse(cls, text: str) -> "Member | None":
        """The member that a text names, as `str` writes it; or None."""
        match = _FILE.fullmatch(text)
        return cls(match[1], int(match[2])) if match and not match[3] else None


class Superseded(RuntimeError, SystemExit):
    """A newer incarnation of this island has joined, and this one must end.

    Where nobody catches it, the process ends with status 76 and without a traceback.
    """

    def __init__(self, why: str):
        super().__init__(why)
        self.code = SUPERSEDED


def check_name(name: str) -> str:
    """The name, or ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"islands: name={name!r} must be 1 to 64 letters, digits, _ or -"
        )
    return name


def enter(store: Store, name: str, details: dict[str, Any]) -> Member:
    """Takes the next incarnation of a name."""
    while True:
        taken = [m.incarnation for m, _ in _listed(store) if m.name == name]
        member = Member(name, max(taken, default=0) + 1)
        own = {**details, "member": str(member)}
        if store.create(f"{FOLDER}/{member}", seal(own)):
            break
    for old, kind in _listed(store):
        age = member.incarnation - old.incarnation if old.name == name else 0
        if age > 0 and (kind or age >= KEPT):
            store.delete(f"{FOLDER}/{old}{kind}")
    return member


def beat(store: Store, member: Member, number: int) -> None:
    """Shows that a member is alive: `number` grows from beat to beat.

    Raises:
      DamagedFile: a folder has the name.
    """
    name = f"{FOLDER}/{member}.beat"
    try:
        store.replace(name, b"%d" % number)
    except IsADirectoryError as error:
        raise DamagedFile(f"{store.place}/{name}", "it is a folder") from error


def leave(store: Store, member: Member) -> None:
    """Says that a member has left, so that nobody waits for it."""
    store.create(f"{FOLDER}/{member}.left", b"")


def details(store: Store, member: Member) -> dict[str, Any]:
    """What a member has said of itself when it joined; empty if unreadable."""
    try:
        return _record(store, member)
    except (OSError, DamagedFile):
        return {}


def newest(store: Store) -> dict[str, int]:
    """The newest incarnation of each name."""
    watch = Watch(store, 0.0)
    watch.look()
    return watch.newest()


class Watch:
    """Which members are alive, as one observer sees it.

    Attributes:
      lost_after: seconds after which a member whose count stands still is lost.
      foreign: names in the folder that are not those of members' files, and why.
    """

    def __init__(
        self,
        store: Store,
        lost_after: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._store, self.lost_after, self._clock = store, lost_after, clock
        self._seen: dict[Member, tuple[bytes, float]] = {}
        self._alive: set[Member] = set()
        self._left: set[Member] = set()
        self._newest: dict[str, int] = {}
        self._known: dict[Member, bool] = {}
        self._damaged: dict[str, str] = {}
        self.foreign: dict[str, str] = {}

    def look(self) -> None:
        """Reads the folder again."""
        listed = self._store.names(FOLDER)
        strange = (name for name in listed if not _FILE.fullmatch(name))
        self._damaged = {x: why for x, why in self._damaged.items() if x in listed}
        members = _parsed(listed)
        self._newest = {}
        for member, kind in members:
            if not kind:
                self.saw(member)
        self._left = {member for member, kind in members if kind == ".left"}
        now = self._clock()
        self._alive = {
            member
            for member in (Member(*item) for item in self._newest.items())
            if member not in self._left and self._is_fresh(member, now)
        }
        self._seen = {m: s for m, s in self._seen.items() if self.is_newest(m)}
        self.foreign = dict.fromkeys(strange, "is no file of a run") | self._damaged

    def alive(self) -> list[Member]:
        """Newest incarnations that have not left, and whose count moves."""
        return sorted(self._alive)

    def is_alive(self, member: Member) -> bool:
        """Whether it is one of them."""
        return member in self._alive

    def saw(self, member: Member) -> None:
        """Another sign of a member, which may be newer than the list."""
        best = self._newest.get(member.name, 0)
        if member.incarnation > best and self._has_joined(member):
            self._newest[member.name] = member.incarnation

    def newest(self) -> dict[str, int]:
        """The newest incarnation of each name."""
        return dict(self._newest)

    def staying(self) -> int:
        """Number of names whose newest incarnation has not left, lost ones too."""
        return sum(Member(*x) not in self._left for x in self._newest.items())

    def is_newest(self, member: Member) -> bool:
        """Whether there is no newer incarnation of its name."""
        return self._newest.get(member.name, 0) <= member.incarnation

    def newest_of(self, name: str) -> int:
        """The newest incarnation of a name; 0 if nobody has had it."""
        return self._newest.get(name, 0)

    def _has_joined(self, member: Member) -> bool:
        """Whether its file is a record, which does not change; read once."""
        if member not in self._known:
            try:
                _record(self._store, member)
            except FileNotFoundError:
                return False
            except DamagedFile as error:
                self._damaged[str(member)] = error.why
                self._known[member] = False
                return False
            self._known[member] = True
        return self._known[member]

    def _is_fresh(self, member: Member, now: float) -> bool:
        try:
            count = contents(self._store, f"{FOLDER}/{member}.beat", SMALL)
        except FileNotFoundError:  # it is still joining
            return False
        except DamagedFile as error:
            self._damaged[f"{member}.beat"] = error.why
            count = b""
        before, since = self._seen.get(member, (None, now))
        if count != before:
            self._seen[member] = count, now
            return True
        return now - since <= self.lost_after


def _record(store: Store, member: Member) -> dict[str, Any]:
    name = f"{FOLDER}/{member}"
    full = f"{store.place}/{name}"
    record = unseal(full, contents(store, name, SMALL))
    if record.get("member", str(member)) != str(member):
        raise DamagedFile(full, "it is the file of another member")
    return record


def _listed(store: Store) -> list[tuple[Member, str]]:
    return _parsed(store.names(FOLDER))


def _parsed(names: list[str]) -> list[tuple[Member, str]]:
    """Members and the kinds of their files; other names are not theirs."""
    matches = filter(None, map(_FILE.fullmatch, names))
    return [(Member(m[1], int(m[2])), m[3]) for m in matches]
