"""What a plan knows of the hardware: links, hosts, codecs. Plain data, kept as JSON.

Workers sit on hosts of equal size. A host has one link to the others, which its workers
share; inside a host workers have links of their own. A message takes

    latency + bytes / bandwidth                          (Hockney's model, one port)
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from relaxjax.schedule import Link

INSIDE = Link(latency=5e-6, bandwidth=1e11)
"""Between workers of one host, where nobody says: 100 GB/s and 5 microseconds."""

CODEC = 2e11
"""Bytes of float32 that are encoded or decoded in a second, where nobody says.

A memory of 500 GB/s, read twice and written to in a quarter.
"""

SLOWER = {
    "codebook8": 5.0,
    "codebook4": 6.0,
    "codebook2": 6.0,
    "drive": 7.0,
    "rotated_sign": 6.0,
    "top_k": 4.0,
    "threshold": 4.0,
    "qsgd": 2.0,
    "dithering": 2.0,
    "tern_grad": 2.5,
}
"""Time to code and decode over that of `quantize8` on a CPU (`relaxjax bench codecs`).

Scatters, rotations and selections; the codes that are not here are alike.
"""


def codecs(rate: float) -> dict[str, float]:
    """Of each compressor, from one figure, where they were not measured.

    Args:
      rate: bytes of float32 that `quantize8` encodes or decodes in a second.

    Example:
      >>> from relaxjax.plan._network import codecs
      >>> codecs(12e9)["codebook4"]
      2000000000.0
    """
    return {"": rate} | {name: rate / by for name, by in SLOWER.items()}


@dataclass(frozen=True, kw_only=True)
class Network:
    """Workers, their hosts and links.

    Attributes:
      workers: how many in all.
      link: of a host, in each direction.
      per_host: workers of each host.
      inside: between workers of one host.
      psum: of a host, as the backend's own all-reduce finds it; None: as `link`.
      codec: bytes of float32 that a worker encodes or decodes in a second, by
        compressor, as names spell it; "" is for all others.
      joined: whether the backend's all-reduce sends many arrays as one message, as NCCL
        does; gloo sends each by itself.
      overlap: whether messages travel while gradients are computed, as on GPUs; XLA
        on CPU does one after the other.

    Raises:
      TypeError: a figure that is not a number.
      ValueError: workers that do not fill the hosts; a rate that is not positive.

    Example:
      >>> from relaxjax import plan, schedule
      >>> slow = schedule.Link(latency=1e-3, bandwidth=1.25e8)
      >>> plan.Network(workers=32, link=slow, per_host=8).hosts
      4
    """

    workers: int
    link: Link = field(default_factory=Link)
    per_host: int = 1
    inside: Link = INSIDE
    psum: Link | None = None
    codec: Mapping[str, float] = field(default_factory=lambda: codecs(CODEC))
    joined: bool = True
    overlap: bool = True

    def __post_init__(self) -> None:
        """Checks the figures."""
        for name in ("workers", "per_host"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r} must be a whole number, 1 or more")
        if self.workers % self.per_host:
            raise ValueError(
                f"workers={self.workers} do not fill hosts of per_host={self.per_host}:"
                " hosts are of equal size; give a multiple, or per_host=1"
            )
        for name, rate in self.codec.items():
            if not (isinstance(rate, int | float) and 0 < rate < math.inf):
                raise ValueError(
                    f"codec[{name!r}]={rate!r} must be a finite number of bytes per "
                    "second, more than 0"
                )

    @property
    def hosts(self) -> int:
        """How many hosts."""
        return self.workers // self.per_host

    def codec_rate(self, compressor: str) -> float:
        """Bytes of float32 per second.

        Args:
          compressor: as names spell it, with feedback or without.
        """
        bare = compressor.partition("+")[0]
        return self.codec.get(bare, self.codec.get("", CODEC))

    def save(self, path: str | Path) -> None:
        """Writes it as JSON.

        Args:
          path: of the file.
        """
        Path(path).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Network":
        """Reads what `save` wrote.

        Args:
          path: of the file.

        Raises:
          ValueError: the file is missing or is no network; says what is wrong.
        """
        try:
            told = json.loads(Path(path).read_text())
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} cannot be read as a network: {error}") from error
        return cls(**_checked(path, told))


def _checked(path: str | Path, told: Any) -> dict[str, Any]:
    known = [f.name for f in fields(Network)]
    if not isinstance(told, dict) or "workers" not in told:
        raise ValueError(
            f"{path} is no network: it must be a JSON object with 'workers' and some "
            f"of {known[1:]}, as Network.save writes it"
        )
    if odd := sorted(set(told) - set(known)):
        raise ValueError(f"{path} has unknown fields {odd}; a network has {known}")
    links = {
        name: _link(path, name, told[name])
        for name in ("link", "inside", "psum")
        if told.get(name) is not None
    }
    return {**told, **links}


def _link(path: str | Path, name: str, told: Any) -> Link:
    try:
        return Link(**told)
    except TypeError as error:
        raise ValueError(
            f'{path}: {name} must be {{"latency": seconds, "bandwidth": bytes per '
            f"second}}, got {told!r}"
        ) from error
