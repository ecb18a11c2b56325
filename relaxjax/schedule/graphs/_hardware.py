"""Rates of links and devices, and what an algorithm costs: plain data.

A message of n bytes takes alpha + n / bandwidth seconds (Hockney's model). A
collective, a topology or a compressor enters a prediction only as its `Cost`.
"""

from dataclasses import dataclass

from relaxjax._core.foreign._fields import check_bytes, check_rate, check_seconds


@dataclass(frozen=True)
class Link:
    """A link in one direction.

    Attributes:
      latency: seconds that each message costs, whatever its size.
      bandwidth: bytes per second.
      window: bytes that may be under way before the first of them is acknowledged, a
        round trip later, over all streams together; None: any number. Linux lets one
        TCP stream have at most 6 MiB unless it is told otherwise (`tcp_rmem`).

    Raises:
      TypeError: a figure that is not a number.
      ValueError: a negative latency, or a bandwidth or window that is not positive.

    Example:
      >>> Link(latency=1e-3, bandwidth=1e6).seconds(2000)
      0.003
      >>> Link(latency=0.05, bandwidth=1.25e8, window=6 * 2**20).rate
      62914560.0
    """

    latency: float = 50e-6
    bandwidth: float = 1.25e9
    window: float | None = None

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_seconds("latency", self.latency)
        check_rate("bandwidth", "bytes per second", self.bandwidth)
        if self.window is not None:
            check_rate("window", "bytes", self.window)

    @property
    def rate(self) -> float:
        """Bytes per second: of the bandwidth, or of one window for each round trip."""
        if self.window is None or not self.latency:
            return self.bandwidth
        return min(self.bandwidth, self.window / (2 * self.latency))

    def seconds(self, nbytes: float, messages: float = 1) -> float:
        """Time of a transfer.

        Args:
          nbytes: total bytes.
          messages: number of messages, sent one after the other; each pays a latency.
        """
        return messages * self.latency + nbytes / self.rate


@dataclass(frozen=True)
class Device:
    """What a device computes and moves per second.

    The defaults are a round accelerator: 10 Tflop/s and 500 GB/s.

    Attributes:
      flops: floating-point operations per second.
      bandwidth: bytes per second to and from its memory.
      overhead: seconds to start each operation.

    Raises:
      TypeError: a field that is not a number.
      ValueError: a rate that is not positive, or a negative overhead.

    Example:
      >>> Device(flops=1e12, bandwidth=1e9).seconds(flops=2e9, nbytes=1e6)
      0.002
    """

    flops: float = 1e13
    bandwidth: float = 5e11
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_rate("flops", "flops per second", self.flops)
        check_rate("bandwidth", "bytes per second", self.bandwidth)
        check_seconds("overhead", self.overhead)

    def seconds(self, *, flops: float, nbytes: float) -> float:
        """Time of an operation: the slower of its arithmetic and its memory traffic.

        Args:
          flops: floating-point operations.
          nbytes: bytes read and written.
        """
        return self.overhead + max(flops / self.flops, nbytes / self.bandwidth)


ACCELERATOR = Device()
"""The default device."""

ETHERNET = Link()
"""The default link: 10 Gbit/s and 50 microseconds."""


@dataclass(frozen=True)
class Cost:
    """What one worker does to communicate one tensor, one bucket or one model.

    Attributes:
      messages: number of messages that it sends, one after the other.
      nbytes: bytes that it sends.
      codec_bytes: bytes that it reads to encode and decode.

    Raises:
      TypeError: a field that is not a number.
      ValueError: a negative or infinite field.

    Example:
      A ring all-reduce of 1 MB over 4 workers:

      >>> Cost(messages=6, nbytes=1_500_000)
      Cost(messages=6, nbytes=1500000, codec_bytes=0)
    """

    messages: int
    nbytes: int
    codec_bytes: int = 0

    def __post_init__(self) -> None:
        """Checks the numbers."""
        for name in ("messages", "nbytes", "codec_bytes"):
            check_bytes(name, getattr(self, name))
