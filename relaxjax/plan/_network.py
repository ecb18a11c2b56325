"""What a plan knows of the hardware: links, hosts, codecs. Plain data, kept as JSON.

Workers sit on hosts of equal size. A host has one link to the others, which its workers
share; inside a host workers have links of their own. A message takes

    latency + bytes / bandwidth                          (Hockney's model, one port)
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from relaxjax._core._checks import check_type
from relaxjax._core.foreign._folders import local_path, write_whole
from relaxjax._core.foreign._json import SMALL, number, read_json
from relaxjax._core.foreign._ranges import WORKERS
from relaxjax._core.foreign._types import wrong
from relaxjax.schedule import Link

INSIDE = Link(latency=5e-6, bandwidth=1e11)
"""Default link between workers of one host: 100 GB/s and 5 microseconds."""

_LINK = "say relaxjax.schedule.Link(latency=1e-4, bandwidth=1.25e8), in s and bytes/s"

CODEC = 2e11
"""Default rate of a codec: bytes of float32 that are encoded or decoded in a second.

At 500 GB/s of memory, with two reads of the array and a quarter of it written.
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
"""Time of a codec over that of `quantize8`, on a CPU (`python -m benchmarks codecs`).

These scatter, rotate or select; all other codecs are as fast as `quantize8`.
"""


def codecs(rate: float) -> dict[str, float]:
    """Rates of all compressors from one figure, where they were not measured.

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
      workers: number of all workers.
      link: the link of a host, in each direction.
      per_host: number of workers of each host.
      inside: the links between workers of one host.
      psum: the link of a host as the backend's own all-reduce uses it; None: `link`.
      codec: bytes of float32 that a worker encodes or decodes in a second, by
        compressor, as names spell it; "" is for all others.
      joined: whether the backend's all-reduce sends many arrays as one message, as NCCL
        does; gloo sends each by itself.
      overlap: whether messages travel while gradients are computed, as on GPUs; XLA
        on CPU does one after the other.

    Raises:
      TypeError: a figure is not a number.
      ValueError: the workers do not fill the hosts; a rate is not positive.

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
        for name in ("link", "inside", "psum"):
            value = getattr(self, name)
            if value is not None or name != "psum":
                check_type(name, value, Link, _LINK)
        for name in ("workers", "per_host"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or value not in WORKERS:
                rule = WORKERS.broken(value) if whole else "1 or more"
                raise ValueError(f"{name}={value!r} must be a whole number, {rule}")
        if self.workers % self.per_host:
            raise ValueError(
                f"workers={self.workers} do not fill hosts of per_host={self.per_host}:"
                " hosts are of equal size; give a multiple, or per_host=1"
            )
        for name, rate in self.codec.items():
            if not (isinstance(rate, int | float) and 0 < rate <= sys.float_info.max):
                raise ValueError(
                    f"codec[{name!r}]={rate!r} must be a finite number of bytes per "
                    "second, more than 0"
                )

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.workers // self.per_host

    def codec_rate(self, compressor: str) -> float:
        """Bytes of float32 per second of a compressor, with feedback or without."""
        return self.codec.get(compressor.partition("+")[0], self.codec.get("", CODEC))

    def save(self, path: str | Path) -> None:
        """Writes the network to a JSON file."""
        text = json.dumps(asdict(self), indent=1, default=number) + "\n"
        write_whole(local_path("save", "path", path), text)

    @classmethod
    def load(cls, path: str | Path) -> "Network":
        """Reads what `save` wrote.

        Args:
          path: the JSON file.

        Raises:
          ValueError: the file is missing or does not hold a network.
        """
        path = local_path("load", "path", path)
        try:
            values = read_json(path, SMALL, finite=False)  # a link may be endless
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} cannot be read as a network: {error}") from error
        try:
            return cls(**_checked(path, values))
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            if str(path) in str(error):
                raise
            raise ValueError(f"{path} is not a network: {error}") from error


_TYPES = {"workers": int, "per_host": int, "joined": bool, "overlap": bool}


def _checked(path: str | Path, values: Any) -> dict[str, Any]:
    known = [f.name for f in fields(Network)]
    if not isinstance(values, dict) or "workers" not in values:
        raise ValueError(
            f"{path} is not a network: it must be a JSON object with 'workers' and "
            f"some of {known[1:]}, as Network.save writes it"
        )
    if odd := sorted(set(values) - set(known)):
        raise ValueError(f"{path} has unknown fields {odd}; a network has {known}")
    if says := wrong({k: v for k, v in _TYPES.items() if k in values}, values):
        raise ValueError(f"{path} is not a network: {says}")
    links = {
        name: _link(path, name, values[name])
        for name in ("link", "inside", "psum")
        if values.get(name) is not None
    }
    return {**values, **links}


def _link(path: str | Path, name: str, value: Any) -> Link:
    try:
        return Link(**value)
    except TypeError as error:
        raise ValueError(
            f'{path}: {name} must be {{"latency": seconds, "bandwidth": bytes per '
            f"second}}, got {value!r}"
        ) from error


def require_network(caller: str, network: Any) -> None:
    """Refuses a rate, a link or anything else in a network's place."""
    check_type(
        f"{caller}: network",
        network,
        Network,
        "say plan.Network(workers=8, link=schedule.Link(latency=1e-4, "
        "bandwidth=1.25e8)), which is 1 Gbit/s in bytes per second, or measure it by "
        "plan.measure",
    )
