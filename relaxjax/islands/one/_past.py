"""An island's own steps, run again: what came to it comes from the log.

The user's script runs as it did, in a process to which RELAXJAX_REPLAY names a member.
The log says what it joined with, after which of its steps it took which version over,
and after which it contributed; what it would contribute now is compared with what was
merged. Nothing else of the run is needed: neither the other islands nor their times.

    joined            the fragments of that version
    adopted           [version, step], from all of its contributions
    step of merge v   what it contributes to v; of what it took over in that step,
                      versions below v came before, and others after it

Steps behind its last contribution cannot be compared, and the script ends there.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from relaxjax._core.foreign._json import parsed
from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _offers as offers
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._channel import Fragment, Joined, News, Offer
from relaxjax.islands.common._files import fingerprint
from relaxjax.islands.common._members import Member
from relaxjax.islands.common._versions import anchor_of

MEMBER, RESULT = "RELAXJAX_REPLAY", "RELAXJAX_REPLAY_RESULT"


class Stay(NamedTuple):
    """What the log says of one member.

    Attributes:
      member: its name and incarnation.
      joined: the version that it found.
      adopted: [version, step]: after which steps it took which version over; one of
        whose contributions was left out took all fragments over again.
      contributed: by version, the line's part of that contribution.
    """

    member: Member
    joined: int
    adopted: set[tuple[int, int]]
    contributed: dict[int, dict[str, Any]]

    @property
    def offers(self) -> dict[int, int]:
        """By step, the version that it contributed to after it."""
        return {said["step"]: version for version, said in self.contributed.items()}


class Compared(NamedTuple):
    """A contribution, made again.

    Attributes:
      version: the merge that has it.
      member: who contributed.
      is_equal: whether all bits are those of the contribution that was merged.
      difference: largest absolute difference; infinite if it is another contribution.
      fault: how it is another; "" if it is not.
    """

    version: int
    member: str
    is_equal: bool
    difference: float
    fault: str


def stays(store: Store) -> list[Stay]:
    """Every member that has contributed, in order of names.

    Raises:
      DamagedFile: a line of the log.
    """
    found: dict[Member, Stay] = {}
    for version in range(1, log.newest(store) + 1):
        record, _ = log.read(store, version)
        for said in record["contributions"]:
            member = Member(said["island"], said["incarnation"])
            stay = found.setdefault(member, Stay(member, said["joined"], set(), {}))
            stay.adopted.update((v, step) for v, step in said["adopted"])
            stay.contributed[version] = said
    return [found[member] for member in sorted(found)]


class Past:
    """What an island exchanged, from the log; stands where its `Post` stood."""

    def __init__(self, store: Store, run: Agreed, stay: Stay, result: Path):
        """Compares contributions, and appends what it finds to a file."""
        self._store, self._run, self._stay, self._result = store, run, stay, result
        self._step, self._waits_for, self._offers = 0, 0, stay.offers

    def joined(self) -> Joined:
        """How the member began."""
        stay, run = self._stay, self._run
        fragments = [
            published(self._store, run, run.newest(p, stay.joined), p)
            for p in range(run.settings.fragments)
        ]
        return Joined(stay.member, stay.joined, fragments)

    def arrived(self) -> News:
        """What the member took over in this step, up to what it contributed to."""
        if self._waits_for:
            late = [v for v in self._adopted_now() if v >= self._waits_for]
            self._waits_for = 0
            return self._news(0, late)
        if self._step == max(self._offers):
            raise SystemExit(0)  # what the script would do next is not in the log
        self._step += 1
        here, version = self._adopted_now(), self._offers.get(self._step)
        if version is None:
            return self._news(0, here)
        return self._news(version, [v for v in here if v < version])

    def send(self, offer: Offer) -> None:
        """Compares a contribution with the one that was merged."""
        said = self._stay.contributed[offer.version]
        changed = [
            f"{key} is {getattr(offer, key)} and was {said[key]}"
            for key in ("step", "base", "tokens", "steps")
            if getattr(offer, key) != said[key]
        ]
        name = str(said["file"]).rpartition("/")[2]
        p = self._run.fragment_of(offer.version)
        anchor = published(self._store, self._run, said["base"], p).anchor
        checked = offers.read(self._store, self._run, offer.version, name, anchor)
        model = offers.opened(self._run, offer.version, anchor, offer.model)
        far = [
            float(np.abs(np.float64(checked.model[k]) - np.float64(x)).max(initial=0))
            for k, x in model.items()
        ]
        found = Compared(
            offer.version,
            str(self._stay.member),
            not changed and checked.sha256 == fingerprint(offer.model),
            float("inf") if changed else max(far),
            "; ".join(changed),
        )
        with self._result.open("a") as file:
            file.write(json.dumps(found) + "\n")

    def wait_for(self, version: int) -> None:
        """What arrives next is later than the contribution to this version."""
        self._waits_for = version

    def close(self) -> None:
        """Nothing is left to do."""

    def _adopted_now(self) -> list[int]:
        """Versions that the member took over after this step."""
        return sorted(v for v, step in self._stay.adopted if step == self._step)

    def _news(self, wanted: int, versions: list[int]) -> News:
        """These versions, and whether to contribute to `wanted` now; 0 for no merge."""
        number_of = self._run.fragment_of
        newest = {number_of(v): v for v in versions}
        fragments = [
            published(self._store, self._run, v, p) for p, v in sorted(newest.items())
        ]
        merged = set(self._stay.contributed)  # of the others nothing is known here
        return News(wanted - 1, fragments, merged, wanted > 0)


def published(store: Store, run: Agreed, version: int, number: int) -> Fragment:
    """A fragment as a version of the log has it.

    Raises:
      DamagedFile: the line or the file.
      FileNotFoundError: the run has not kept it.
    """
    record, _ = log.read(store, version)
    return Fragment(number, version, anchor_of(store, run, record, number))


def past(store: Store, run: Agreed, member: str) -> Past:
    """The past of the member that the environment names.

    Raises:
      ValueError: the log has no contribution of it.
    """
    known = {str(stay.member): stay for stay in stays(store)}
    if member not in known:
        raise ValueError(
            f"islands: {MEMBER}={member}, and the log in {store.place} has "
            f"contributions of {', '.join(known) or 'nobody'}"
        )
    run.agree(store)
    result = os.environ.get(RESULT, os.devnull)
    return Past(store, run, known[member], Path(result))


def read(result: Path) -> Iterator[Compared]:
    """What a process has found."""
    for line in result.read_bytes().splitlines():
        yield Compared(*parsed(line, finite=False))
