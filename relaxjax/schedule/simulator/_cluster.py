"""Workers, servers, links and stragglers: what a schedule runs on.

Stragglers: in every step each worker's computation is stretched by a random factor: a
log-normal jitter and, with a small probability, a slowdown. The slowest of n workers
is the n-th order statistic: with F the distribution of one factor and U uniform,

    max of n  ~  F^-1(U^(1/n)),      min of n  ~  F^-1(1 - U^(1/n))
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from relaxjax._core._checks import check_type
from relaxjax._core.foreign._fields import check_count, check_rate, check_seconds
from relaxjax.schedule.graphs._hardware import ETHERNET, Link

_NORMAL = NormalDist()
_LINK = "give Link(latency=..., bandwidth=...)"


@dataclass(frozen=True)
class Workers:
    """A class of identical workers.

    Attributes:
      count: number of workers.
      link: the link of each worker, one such link in each direction.
      speed: how fast they compute; 2.0 halves the graph's times.

    Raises:
      TypeError: a count that is not a whole number, or a link that is not a `Link`.
      ValueError: no workers, or a speed that is not positive.

    Example:
      >>> Workers(16, link=Link(bandwidth=1.25e8)).speed
      1.0
    """

    count: int
    link: Link = ETHERNET
    speed: float = 1.0

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_count("count", self.count, remedy="leave out classes without workers")
        check_type("link", self.link, Link, _LINK)
        check_rate("speed", "graph seconds per second", self.speed)


@dataclass(frozen=True)
class Stragglers:
    """How the computation of workers varies from step to step.

    Attributes:
      jitter: standard deviation of the logarithm of the factor.
      share: probability that a worker is slow in a step.
      slowdown: the factor by which it is then slower.

    Raises:
      ValueError: a negative jitter, a share outside [0, 1], a slowdown below 1.

    Example:
      >>> Stragglers(share=1.0, slowdown=3.0).factor(random.Random(0))
      3.0
    """

    jitter: float = 0.0
    share: float = 0.0
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_seconds("jitter", self.jitter)
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {self.share}")
        if not 1 <= self.slowdown < math.inf:
            raise ValueError(
                f"slowdown must be at least 1 and finite, got {self.slowdown}"
            )

    @property
    def varies(self) -> bool:
        """Whether any two factors can differ."""
        return self.jitter > 0 or (0 < self.share < 1 and self.slowdown > 1)

    def factor(self, rng: random.Random) -> float:
        """The factor of one worker in one step.

        Args:
          rng: the source of randomness.
        """
        slow = self.slowdown if rng.random() < self.share else 1.0
        return slow * math.exp(self.jitter * rng.gauss(0.0, 1.0))

    def typical(self, rng: random.Random) -> float:
        """The median factor.

        Args:
          rng: ignored; there for a common signature.
        """
        del rng
        return self.slowdown if self.share > 0.5 else 1.0

    def slowest(self, n: int, rng: random.Random) -> float:
        """The largest factor of n workers, drawn at once.

        Args:
          n: number of workers.
          rng: the source of randomness.
        """
        slow = _binomial(n, self.share, rng)
        return max(
            self.slowdown * self._largest(slow, rng) if slow else 0.0,
            self._largest(n - slow, rng) if slow < n else 0.0,
        )

    def fastest(self, n: int, rng: random.Random) -> float:
        """The smallest factor of n workers, drawn at once.

        Args:
          n: number of workers.
          rng: the source of randomness.
        """
        slow = _binomial(n, self.share, rng)
        return min(
            self.slowdown / self._largest(slow, rng) if slow else math.inf,
            1 / self._largest(n - slow, rng) if slow < n else math.inf,
        )

    def _largest(self, n: int, rng: random.Random) -> float:
        """Maximum of n log-normal factors (the minimum is 1 / maximum)."""
        quantile = min(max(rng.random(), 1e-300) ** (1 / n), 1 - 1e-16)
        return math.exp(self.jitter * _NORMAL.inv_cdf(quantile))


NO_STRAGGLERS = Stragglers()
"""Every worker computes as the graph says."""


@dataclass(frozen=True)
class Cluster:
    """Workers and the servers that hold the parameters.

    Attributes:
      workers: a number of identical workers on `link`, or classes of workers.
      servers: number of parameter servers.
      link: the link of each worker, if `workers` is a number.
      server_link: the link of each server, one in each direction; by default `link`.
      stragglers: how computation varies.
      codec_bandwidth: bytes per second that a worker encodes and decodes.
      segment_bytes: messages share a link in turns of at most this size, as packets do,
        without a latency of their own.

    Raises:
      TypeError: a field of the wrong type, or a count that is not a whole number.
      ValueError: no workers or no servers.

    Example:
      >>> Cluster(workers=8, servers=2).size
      8
    """

    workers: int | Sequence[Workers] = 1
    servers: int = 1
    link: Link = ETHERNET
    server_link: Link | None = None
    stragglers: Stragglers = NO_STRAGGLERS
    codec_bandwidth: float = 1e10
    segment_bytes: float = 2e6

    def __post_init__(self) -> None:
        """Checks the fields."""
        check_count("servers", self.servers)
        for name in ("link", "server_link"):
            if (link := getattr(self, name)) is not None:
                check_type(name, link, Link, _LINK)
        check_type("stragglers", self.stragglers, Stragglers, "give Stragglers(...)")
        check_rate("segment_bytes", "bytes", self.segment_bytes)
        check_rate("codec_bandwidth", "bytes per second", self.codec_bandwidth)
        if isinstance(self.workers, str) or not isinstance(self.workers, Sequence):
            check_count("workers", self.workers, remedy="or a list of Workers(...)")
        if not self.classes:
            raise ValueError("workers must hold at least one class, got an empty list")
        for kind in self.classes:
            check_type("workers", kind, Workers, "a list holds Workers(8, link=...)")

    @property
    def classes(self) -> tuple[Workers, ...]:
        """The classes of workers."""
        if isinstance(self.workers, Sequence):
            return tuple(self.workers)
        return (Workers(self.workers, self.link),)

    @property
    def size(self) -> int:
        """The total number of workers."""
        return sum(workers.count for workers in self.classes)


def _binomial(n: int, p: float, rng: random.Random) -> int:
    """Binomial draw; by the normal approximation where n p (1 - p) > 1000."""
    variance = n * p * (1 - p)
    if variance > 1000:
        return min(max(round(rng.gauss(n * p, math.sqrt(variance))), 0), n)
    if p in (0.0, 1.0):
        return round(n * p)
    successes, trial = 0, -1
    while True:  # geometric gaps between successes
        trial += 1 + int(math.log(1.0 - rng.random()) / math.log1p(-p))
        if trial >= n:
            return successes
        successes += 1
