"""Contributions: who has offered what for a merge, and which of it is refused.

    offers/00000042/NAME.000003      of incarnation 3 of NAME for merge 42

The file is created if absent, and merged only if its base is the fragment's newest
version: so each (island, incarnation, fragment, base version) is merged once at most.
"""

import math
from typing import Any, NamedTuple

from relaxjax.islands.carriers import _foreign as foreign
from relaxjax.islands.carriers._foreign import DamagedFile, Kind
from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._bounds import Part, is_finite, length_of, weight_of
from relaxjax.islands.common._channel import Offer
from relaxjax.islands.common._codes import decoded
from relaxjax.islands.common._files import Arrays, fingerprint, pack, unpack
from relaxjax.islands.common._members import Member, Watch

FOLDER = "offers"
_META: dict[str, Kind] = {
    "version": int,
    "base": int,
    "tokens": (int, float),
    "steps": int,
    "step": int,
    "adopted": list,
    "joined": int,
    "dropped": (int, float),
}


class Checked(NamedTuple):
    """A contribution that may be merged.

    Attributes:
      member: who has contributed.
      offer: as it was sent.
      file: where it lies.
      sha256: the digest of what was sent.
      model: the models, out of their codes.
      length: how far they are from the anchor; infinite if they are not finite.
    """

    member: Member
    offer: Offer
    file: str
    sha256: str
    model: Arrays
    length: float

    def part(self) -> Part:
        """What a merge takes of it."""
        return Part(self.model, self.offer.tokens, self.offer.steps)

    def record(self, weight: float) -> dict[str, Any]:
        """What the log says of it."""
        said = self.offer._asdict()
        for key in ("version", "model"):
            del said[key]
        return {
            "island": self.member.name,
            "incarnation": self.member.incarnation,
            "weight": weight,
            "length": self.length,
            "sha256": self.sha256,
            "file": self.file,
            **said,
        }


class LeftOut(NamedTuple):
    """A contribution that a merge does not have.

    Attributes:
      checked: the contribution.
      cause: "finite", "length" or "merged": see `relaxjax.islands.common._round`.
      why: in words.
    """

    checked: Checked
    cause: str
    why: str

    def record(self) -> dict[str, Any]:
        """What the log says of it; a length that is infinite is null there."""
        said = self.checked.record(0.0)
        length = said["length"] if math.isfinite(said["length"]) else None
        return {**said, "length": length, "cause": self.cause, "why": self.why}


def folder_of(version: int) -> str:
    """Where contributions to a merge are."""
    return f"{FOLDER}/{version:08d}"


def write(store: Store, member: Member, offer: Offer) -> bool:
    """Offers; False if this member has offered for that merge."""
    meta = offer._asdict()
    model = meta.pop("model")
    name = f"{folder_of(offer.version)}/{member}"
    return store.create(name, pack({**meta, "island": str(member)}, model))


def read(store: Store, run: Agreed, version: int, name: str, anchor: Arrays) -> Checked:
    """A contribution, by the name of its file; `anchor` is what codes stand on.

    Raises:
      DamagedFile: it is not one, or not for this merge.
    """
    file = f"{folder_of(version)}/{name}"
    full, member = f"{store.place}/{file}", Member.parse(name)
    if member is None:
        raise DamagedFile(full, "its name is not that of a contribution")
    most = run.most(run.fragment_of(version))
    meta, model = unpack(full, foreign.contents(store, file, most))
    foreign.require(full, meta, _META)
    foreign.require_pairs(full, "adopted", meta["adopted"], int, int)
    if meta["version"] != version or meta.get("island") != str(member):
        raise DamagedFile(full, "it was written for another merge or by another island")
    sent = run.check(full, run.fragment_of(version), model, "sent")
    offer = Offer(model=sent, **{key: meta[key] for key in _META})
    model = opened(run, version, anchor, sent)
    length = length_of(anchor, model)
    return Checked(member, offer, file, fingerprint(sent), model, length)


def not_finite(checked: Checked) -> str:
    """Which leaf of a contribution is not finite, in words."""
    found = (n for n, x in checked.model.items() if not is_finite(x, str(x.dtype)))
    return f"{next(found, 'its move')} is not finite"


def opened(run: Agreed, version: int, anchor: Arrays, sent: Arrays) -> Arrays:
    """The models that were sent, out of their codes if they are in codes."""
    code, seed = run.settings.compressor, run.settings.seed
    return decoded(code, seed, version, anchor, sent) if code else sent


def why_not(checked: Checked, base: int, watch: Watch) -> str | None:
    """Why a contribution cannot be merged, or None."""
    member, offer = checked.member, checked.offer
    if not watch.is_newest(member):
        newer = watch.newest_of(member.name)
        return (
            f"incarnation {newer} of {member.name!r} has joined since, so that "
            f"incarnation {member.incarnation} is no longer it"
        )
    if offer.base != base:
        return f"its base is version {offer.base} and the newest is {base}"
    if not (offer.tokens > 0 and offer.steps > 0):
        return f"it has {offer.tokens} tokens in {offer.steps} steps"
    return None


def too_light(offer: Offer) -> str | None:
    """Why a contribution would be merged and move nothing, or None."""
    if offer.steps and weight_of(offer.tokens, offer.steps) < foreign.MOST**-2:
        return (
            f"it has {offer.tokens} tokens in {offer.steps} steps, whose weight in "
            "float32 is 0 or next to it: count in a smaller unit"
        )
    return None


def prune(store: Store, before: int) -> None:
    """Removes contributions to merges before a version."""
    for version, folder in foreign.numbered(store.names(FOLDER)).items():
        if version < before:
            for name in store.names(f"{FOLDER}/{folder}"):
                store.delete(f"{FOLDER}/{folder}/{name}")
            store.delete(f"{FOLDER}/{folder}")
