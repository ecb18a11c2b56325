"""What the replay of a program shows."""

from typing import NamedTuple


class Transfer(NamedTuple):
    """One collective of a replayed program.

    Attributes:
        name: of its instruction.
        nbytes: bytes that the busiest device sends.
        start: seconds at which it begins on the link.
        end: seconds at which it ends.
        waited: seconds that the compute stream waited for it.
    """

    name: str
    nbytes: int
    start: float
    end: float
    waited: float = 0.0


class Replay(NamedTuple):
    """What a replay shows; seconds of one run.

    Attributes:
        total: of the whole program.
        compute: in which the compute stream works.
        exposed: in which it waits for a transfer.
        transfers: in the order in which they began.
        flops: operations of the program.
        flops_under: those of them between some transfer's start and its done.
        backward_flops: operations of the backward pass (those that JAX's transposition
            made, by the names that the compiler keeps).
        backward_flops_under: those of them between some transfer's start and its done.
    """

    total: float
    compute: float
    exposed: float
    transfers: tuple[Transfer, ...]
    flops: float
    flops_under: float
    backward_flops: float
    backward_flops_under: float

    @property
    def share(self) -> float:
        """Share of the backward pass's operations under a transfer; 0 without any."""
        return self.backward_flops_under / (self.backward_flops or 1.0)

    @property
    def forward_share(self) -> float:
        """Share of the other operations under a transfer; 0 without any."""
        forward = self.flops - self.backward_flops
        return (self.flops_under - self.backward_flops_under) / (forward or 1.0)

    @property
    def share_of_all(self) -> float:
        """Share of the program's operations under a transfer; 0 without any."""
        return self.flops_under / (self.flops or 1.0)
