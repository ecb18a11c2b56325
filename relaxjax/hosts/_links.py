"""Links between processes of one machine: loopback, which needs no rights.

`Namespaces`, which shapes real links, is in `_namespaces`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from relaxjax._core._checks import check_rate


class Place(NamedTuple):
    """Where a process runs.

    Attributes:
      address: IP address that the process binds to.
      namespace: name of its network namespace, or None.
      rate: bytes per second at which it paces what it sends, or None.
    """

    address: str = "127.0.0.1"
    namespace: str | None = None
    rate: float | None = None


class Links(Protocol):
    """Gives each process a place, from `open` to `close`."""

    def open(self, names: Sequence[str]) -> dict[str, Place]:
        """Returns a place for each process, by its name."""
        ...

    def close(self) -> None:
        """Removes all that `open` has made; may be called twice."""
        ...


@dataclass(frozen=True)
class Loopback:
    """127.0.0.1, which works everywhere.

    Attributes:
      rate: bytes per second at which each process paces itself; `benchmarks.testbed`
        does, `relaxjax run` does not. This is not a link: the sender sleeps between
        pieces of 64 KiB, and what it *receives* is not limited. None: as fast as memory
        goes.

    Raises:
      ValueError: a rate that is not positive.

    Example:
      >>> Loopback(rate=12.5e6).open(["server 0"])["server 0"].address
      '127.0.0.1'
    """

    rate: float | None = None

    def __post_init__(self) -> None:
        """Checks the rate."""
        if self.rate is not None:
            check_rate("rate", "bytes per second", self.rate)

    def open(self, names: Sequence[str]) -> dict[str, Place]:
        """Returns the same place for each process."""
        return {name: Place(rate=self.rate) for name in names}

    def close(self) -> None:
        """Does nothing: there is nothing to remove."""
