"""Rates of links and devices, and what an algorithm costs: plain data.

A message of n bytes takes alpha + n / bandwidth seconds (Hockney's model). A
collective, a topology or a compressor enters a prediction only as its `Cost`.
"""

from dataclasses import dataclass

from relaxjax._core._checks import check_bytes, check_rate, check_seconds


@dataclass(frozen=True)
class Link:
    """A link in one direction.

    Attributes:
      latency: seconds that each message costs, whatever its size.
      bandwidth: bytes per second.

    Raises:
      TypeError: a latency or bandwidth that is not a number.
      ValueError: a negative latency, or a bandwidth that is not positive.

    Example:
      >>> Link(latency=1e-3, bandwidth=1e6).seconds(2000)
      0.003
    """

    latency: float = 50e-6
    bandwidth: float = 1.25e9

    def __post_init__(self) -> None:
        """Checks the numbers."""
        check_seconds("latency", self.latency)
        check_rate("bandwidth", "bytes per second", self.bandwidth)

    def seconds(self, nbytes: float, messages: float = 1) -> float:
        """Time of a transfer.

        Args:
          nbytes: total bytes.
          messages: number of messages, sent one after the other; each pays a latency.
        """
        return messages * self.latency + nbytes / self.bandwidth


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
