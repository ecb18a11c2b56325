"""What the network bench compares: relaxations, and hooks of PyTorch's DDP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

ALONE = "alone"
RELAXJAX, DDP = "relaxjax", "DDP"
PAIRS = "relaxjax, two devices"
"""relaxjax with two workers in each process."""
HOOK_START = 2
"""Steps in full that PowerSGD's hook takes first; it asks for as many at least."""
RATE = 1e-3
"""Learning rate of Adam."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A row.

    Attributes:
      system: `RELAXJAX`, `PAIRS` or `DDP`.
      name: a relaxation as `relaxjax train` spells it, a hook of DDP, or "alone": the
        same steps without any communication.
      options: options of the relaxation, or of the hook.
      period: steps after which what it sends repeats; a block takes as many.
      without: what is taken from it: "overlap", "fusion" or "hierarchy".
    """

    system: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    period: int = 1
    without: str = ""

    @property
    def label(self) -> str:
        """The name of the row in tables."""
        options = "".join(f" {key}={value}" for key, value in self.options.items())
        options += f" without {self.without}" * bool(self.without)
        return f"{'DDP ' * (self.system == DDP)}{self.name}{options}"

    @property
    def alone(self) -> bool:
        """Whether it communicates nothing."""
        return self.name == ALONE

    @property
    def contends(self) -> bool:
        """Whether it is a relaxation, or one of DDP's."""
        return not self.alone and self.name != "fp32"

    @property
    def start(self) -> int:
        """Number of first steps in which gradients travel as they are."""
        if self.system == DDP and self.name == "power_sgd":
            return HOOK_START
        return self.options.get("start_after", 0)

    def plain(self, *, steps: int, rate: float = RATE) -> dict[str, Any]:
        """Plain data for a system's module; `steps` are those of the training."""
        return {
            "name": self.name,
            "options": dict(self.options),
            "without": self.without,
            "rate": rate,
            "steps": steps,
        }


def _ours(name: str, *, period: int = 1, **options: Any) -> Method:
    return Method(system=RELAXJAX, name=name, options=options, period=period)


def _theirs(name: str, *, period: int = 1, **options: Any) -> Method:
    return Method(system=DDP, name=name, options=options, period=period)


METHODS = (
    _ours(ALONE),
    _theirs(ALONE),
    *(_ours("power_sgd", rank=rank) for rank in (1, 2, 4)),
    *(_ours("power_sgd@two_shot", rank=rank, bits=16) for rank in (1, 2, 4, 8)),
    *(_ours("power_sgd@two_shot", rank=rank, bits=8) for rank in (2, 4, 8, 16)),
    *(_ours("acp_sgd@two_shot", rank=rank, bits=8) for rank in (4, 8, 16)),
    *(
        _ours("power_sgd@two_shot", rank=rank, bits=16, start_after=HOOK_START)
        for rank in (2, 4)
    ),
    *(_theirs("power_sgd", rank=rank) for rank in (1, 2, 4)),
    _theirs("fp16"),
    _theirs("fp32"),
    *(
        _ours("local_sgd@two_shot", period=every, rank=rank, bits=8, sync_every=every)
        for every, rank in ((2, 8), (4, 16), (8, 32), (16, 32))
    ),
    _theirs("local_sgd", period=8, sync_every=8),
    _ours("all_reduce+sign+ef14@two_shot"),
    _ours("all_reduce+quantize4+ef14@two_shot"),
    _ours("all_reduce+quantize8@two_shot"),
    _ours("all_reduce+fp16@ring"),
    _ours("all_reduce+bf16@ring"),
    _ours("all_reduce"),
    _ours("all_reduce@ring"),
    _ours("diloco+quantize8@two_shot", period=50, sync_every=50),
    _ours("local_sgd", period=8, sync_every=8),
    _ours("gossip", period=2),
    _ours("gossip+quantize8"),
    _ours("parameter_server"),
)


def chosen(labels: Sequence[str] | None) -> list[Method]:
    """The rows with these labels (None: all), and those without communication.

    Raises:
      ValueError: an unknown label.
    """
    known = {method.label: method for method in METHODS}
    if odd := [label for label in labels or () if label not in known]:
        raise ValueError(f"method must be one of {[*known]}, got {odd[0]!r}")
    return [m for m in METHODS if not labels or m.alone or m.label in labels]


def available(methods: Sequence[Method]) -> list[Method]:
    """The methods that can be run here; says which cannot."""
    if find_spec("torch") is None:
        print('without PyTorch (pip install "relaxjax[bench]"): DDP is left out')
        return [m for m in methods if m.system != DDP]
    return list(methods)
