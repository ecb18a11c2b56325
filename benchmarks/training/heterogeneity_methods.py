"""What `python -m benchmarks heterogeneity` compares: methods and their graphs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import optax

from relaxjax._core._relaxation import Training
from relaxjax._names import parse

AXIS = "data"
MOMENTUM = 0.9


def transformation(
    method: str, optimizer: Any, rate: Any, workers: int, **options: float
) -> optax.GradientTransformationExtraArgs:
    """A relaxation by its name, with its options, around an optimizer at this rate."""
    training = Training(optimizer, rate, 1, workers)
    return parse(method).build(AXIS, training, **options)


class Entry(NamedTuple):
    """A method.

    Attributes:
      name: its name in tables, with its graph.
      method: its name as `relaxjax train` spells it.
      corrected: whether data that differ leave no bias, even at a constant rate.
      momentum: whether it has momentum, and so a tenth of the learning rates.
      options: options of the method.
    """

    name: str
    method: str
    corrected: bool = False
    momentum: bool = False
    options: Mapping[str, float] = {}

    def make(self, rate: Any, workers: int) -> optax.GradientTransformationExtraArgs:
        """The whole transformation at a learning rate."""
        sgd = optax.sgd(rate, MOMENTUM if self.momentum else None)
        return transformation(self.method, sgd, rate, workers, **self.options)


ENTRIES = (
    Entry("all_reduce", "all_reduce"),
    Entry("gossip, ring", "gossip@ring"),
    Entry("gossip, torus", "gossip@torus"),
    Entry("gossip, exponential", "gossip@exponential"),
    Entry("gossip, one-peer exponential", "gossip@one_peer_exponential"),
    Entry("combine_then_adapt, ring", "combine_then_adapt@ring"),
    Entry("push_sum, one-peer exponential", "push_sum@one_peer_exponential"),
    Entry("exact_diffusion, lazy ring", "exact_diffusion@ring", True),
    Entry("exact_diffusion, lazy torus", "exact_diffusion@torus", True),
    Entry("gradient_tracking, ring", "gradient_tracking@ring", True),
    Entry(
        "gradient_tracking, one-peer exponential",
        "gradient_tracking@one_peer_exponential",
        True,
    ),
    Entry("relay_sum, chain", "relay_sum@chain", True),
    Entry("relay_sum, binary tree", "relay_sum@binary_tree", True),
    Entry("CHOCO in signs, ring", "gossip+sign@ring"),
    Entry("dcd_psgd in 8 bits, ring", "dcd_psgd+quantize8@ring"),
    Entry("deep_squeeze in 8 bits, ring", "deep_squeeze+quantize8@ring"),
    Entry("moniqua in 8 bits, ring", "moniqua@ring", options={"theta": 2.0}),
    Entry("all_reduce, momentum", "all_reduce", momentum=True),
    Entry("gossip, ring, own momentum", "gossip@ring", momentum=True),
    Entry(
        "quasi_global_momentum, ring",
        "quasi_global_momentum@ring",
        momentum=True,
        options={"momentum": MOMENTUM},
    ),
)
