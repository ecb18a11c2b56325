"""Links between processes of one machine: loopback, or real ones of a chosen rate.

`Loopback` needs no rights. With `Namespaces` each process has a network stack of its
own and a pair of virtual interfaces to a bridge; `tc` shapes both ends with a token
bucket, so that each process sends and receives at most `rate`. TCP's congestion
control is set to reno, because machines differ in their default. `ip netns exec` shows
a process an /etc/hosts in which the machine's name has the namespace's address, which
is what gloo binds to.

Cost: about 0.1 s for each namespace to set up, and as much to remove.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import NamedTuple, Protocol

from relaxjax._core.foreign._fields import check_rate

_ETC = Path("/etc/netns")
_NEW_NET = 0x40000000  # CLONE_NEWNET
_MOST = 200
_SYSCTL = (
    "net.ipv4.tcp_congestion_control=reno",
    "net.ipv4.tcp_slow_start_after_idle=0",
)


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


class Namespaces:
    """A network namespace and a shaped link for each process.

    Experimental: this may change in any release.

    Needs Linux, root, and the programs `ip` and `tc` (Debian: `iproute2`). The
    namespaces and links are named after this process ("rj<pid>...") and are removed by
    `close`; after a kill -9, `ip netns delete` and `ip link delete` remove them by
    these names.

    Args:
      rate: bytes per second of each process, in each direction.

    Raises:
      OSError: something of the above is missing; `Namespaces.missing()` says what.
      ValueError: a rate that is not positive.
    """

    def __init__(self, rate: float):
        check_rate("rate", "bytes per second", rate)
        if reason := self.missing():
            raise OSError(f"Namespaces: {reason}; Loopback() works everywhere")
        self.rate = rate
        self._prefix = f"rj{os.getpid()}"
        self._count = 0
        self._bridge = False

    @staticmethod
    def missing() -> str | None:
        """What this machine lacks, in words; None if it lacks nothing."""
        for program in ("ip", "tc"):
            if shutil.which(program) is None:
                return f"the program {program!r} is missing (Debian: iproute2)"
        return None if os.geteuid() == 0 else "only root can make network namespaces"

    def open(self, names: Sequence[str]) -> dict[str, Place]:
        """Makes a namespace for each process, by its name; at most 200.

        Raises:
          ValueError: too many.
          OSError: the kernel refuses; all that was made is removed.
        """
        if len(names) > _MOST:
            raise ValueError(f"Namespaces: {len(names)} processes; at most {_MOST}")
        try:
            _run(f"ip link add {self._prefix} type bridge")
            self._bridge = True
            _run(f"ip link set {self._prefix} up")
            return {name: self._add(i) for i, name in enumerate(names)}
        except OSError:
            self.close()
            raise

    def shape(self, rate: float) -> None:
        """Sets the rate of every link, in bytes per second, at once."""
        check_rate("rate", "bytes per second", rate)
        self.rate = rate
        for i in range(self._count):
            self._shape(i, "change")

    def sent(self) -> list[int]:
        """Bytes that each process has sent so far, by the kernel's own count.

        They are those of whole Ethernet frames: payloads, acknowledgments and headers.
        """
        links = (Path(f"/sys/class/net/{self._prefix}v{i}") for i in range(self._count))
        return [int((x / "statistics" / "rx_bytes").read_text()) for x in links]

    def close(self) -> None:
        """Removes the namespaces and the bridge; may be called twice."""
        for i in range(self._count):
            shutil.rmtree(_ETC / f"{self._prefix}n{i}", ignore_errors=True)
            _run(f"ip link delete {self._prefix}v{i}", check=False)
            _run(f"ip netns delete {self._prefix}n{i}", check=False)
        if self._bridge:
            _run(f"ip link delete {self._prefix}", check=False)
        self._count, self._bridge = 0, False

    def _add(self, i: int) -> Place:
        space, outer = f"{self._prefix}n{i}", f"{self._prefix}v{i}"
        address = f"10.77.0.{i + 1}"
        self._count = i + 1
        _run(f"ip netns add {space}")
        _run(f"ip link add {outer} type veth peer name eth0 netns {space}")
        _run(f"ip link set {outer} master {self._prefix} up")
        inside = f"ip netns exec {space}"
        _run(f"{inside} ip address add {address}/24 dev eth0")
        _run(f"{inside} ip link set eth0 up")
        _run(f"{inside} ip link set lo up")
        _run(f"{inside} sysctl -qw {' '.join(_SYSCTL)}")
        self._shape(i, "add")
        (_ETC / space).mkdir(parents=True, exist_ok=True)
        names = f"127.0.0.1 localhost\n{address} {gethostname()}\n"
        (_ETC / space / "hosts").write_text(names)
        return Place(address, space)

    def _shape(self, i: int, verb: str) -> None:
        bucket = f"root tbf rate {round(8 * self.rate)}bit burst 64kb latency 100ms"
        _run(f"tc qdisc {verb} dev {self._prefix}v{i} {bucket}")
        inside = f"ip netns exec {self._prefix}n{i}"
        _run(f"{inside} tc qdisc {verb} dev eth0 {bucket}")


def enter(namespace: str) -> None:
    """Moves this thread, and threads that it starts later, into a namespace.

    Args:
      namespace: its name, as in `ip netns`.

    Raises:
      OSError: there is no such namespace, or this is not root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}", "rb") as file:
        if libc.setns(file.fileno(), _NEW_NET):
            code = ctypes.get_errno()
            raise OSError(code, f"{namespace}: {os.strerror(code)}")


def _run(command: str, *, check: bool = True) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise OSError(f"{command}: {done.stderr.strip()}")
