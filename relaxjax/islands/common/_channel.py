"""What an island needs of a carrier: five verbs; what crosses is arrays of the host.

A carrier decides how members find each other, who merges, and where the common state
is. What it promises: versions only grow; a version is the same bits for everybody; a
contribution is merged once or never, and the log says which; none of the verbs waits
for another island.
"""

from typing import NamedTuple, Protocol

from relaxjax.islands.common._files import Arrays
from relaxjax.islands.common._members import Member


class Fragment(NamedTuple):
    """A part of the common model.

    Attributes:
      number: which fragment, 0 to P - 1.
      version: the merge that it is from; 0 is the start.
      anchor: its arrays, in float32 where a param is narrower.
    """

    number: int
    version: int
    anchor: Arrays


class Offer(NamedTuple):
    """An island's contribution to a merge.

    Attributes:
      version: the merge.
      base: the version of the fragment that the island started from.
      model: the fragment as the island has it, in the params' dtypes; or codes of how
        far that is from its base.
      tokens: tokens since it took that version over.
      steps: steps since then.
      step: the island's own step, 1 after its first.
      adopted: [version, step] of what it has taken over since its last contribution
        that it knows to be merged.
      joined: the version that it found when it joined.
      dropped: tokens that it has taken in and that no merge will ever have.
    """

    version: int
    base: int
    model: Arrays
    tokens: float
    steps: int
    step: int
    adopted: list[list[int]]
    joined: int
    dropped: float


class News(NamedTuple):
    """What has happened since an island last asked.

    Attributes:
      version: the newest version.
      fragments: the newest of each fragment that has changed.
      merged: versions since then that have a contribution of this island.
      wanted: whether the next merge has its quorum, and waits for the others.
    """

    version: int
    fragments: list[Fragment]
    merged: set[int]
    wanted: bool


class Joined(NamedTuple):
    """How an island begins.

    Attributes:
      member: its name and incarnation.
      version: the newest version.
      fragments: the common model.
    """

    member: Member
    version: int
    fragments: list[Fragment]


class Channel(Protocol):
    """An island's side of a carrier."""

    def join(self, start: list[Arrays]) -> Joined:
        """Becomes a member; `start` is the common model if the run begins here."""
        ...

    def offer(self, offer: Offer) -> bool:
        """Contributes, once for each merge; False if the merge is over."""
        ...

    def adopt(self) -> News:
        """What is new; also shows that this island is alive."""
        ...

    def state(self) -> list[Fragment]:
        """The whole common model, at its newest."""
        ...

    def leave(self) -> None:
        """Says that nobody should wait for this island."""
        ...


class Mail(Protocol):
    """What comes to an island and goes from it: by a `Post`, or as the log has it."""

    def arrived(self) -> News:
        """What has come since the last call."""
        ...

    def send(self, offer: Offer) -> None:
        """Hands over a contribution."""
        ...

    def wait_for(self, version: int) -> None:
        """Waits until a version is there."""
        ...

    def close(self) -> None:
        """Leaves."""
        ...
