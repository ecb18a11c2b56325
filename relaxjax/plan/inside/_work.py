"""What one worker of a split model calls in a step, and what a call takes.

Calls of a step with L layers, of which a worker computes ceil(L / pipeline):

    tensor     2 a layer: `copy` in front, `all_reduce` behind, of [tokens, width]
    expert     2 a layer: `all_to_all` there and back, of [tokens k, width], k experts
               for each token
    pipeline   1: `send` of [tokens, width], over all microbatches

The axes lie in this order: neighbors on "tensor" are neighbors on a host. Of the n
workers on an axis, m share a host, and all workers of a host send over its link at
once. Encoding and decoding pass all elements once each; a sum encodes them, decodes n
parts of 1/n, encodes its own part and decodes all.

Cost: O(1).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from relaxjax.plan._network import Network
from relaxjax.plan._traffic import Traffic

AXES = ("tensor", "expert", "pipeline")
"""From workers that are nearest to each other to those that are farthest."""


class Work(NamedTuple):
    """A split model's step, as one worker sees it.

    Attributes:
      layers: number of layers of the whole model.
      width: elements of a token between layers.
      tokens: tokens of a worker in a step, over all microbatches.
      tensor: workers on the axis that splits products.
      expert: workers on the axis that holds experts apart.
      pipeline: stages.
      experts_per_token: experts that each token goes to.
    """

    layers: int
    width: int
    tokens: int
    tensor: int = 1
    expert: int = 1
    pipeline: int = 1
    experts_per_token: int = 1

    def calls(self, axis: str) -> list[tuple[str, int]]:
        """Collectives of a step on an axis, and how often each is called."""
        layers = -(-self.layers // self.pipeline)
        return {
            "tensor": [("copy", 2 * layers), ("all_reduce", 2 * layers)],
            "expert": [("all_to_all", 2 * layers)],
            "pipeline": [("send", 1)],
        }[axis]

    def sends(self, axis: str) -> jax.ShapeDtypeStruct:
        """What a worker gives to a call."""
        n = self.expert
        if axis != "expert":
            return jax.ShapeDtypeStruct((self.tokens, self.width), jnp.bfloat16)
        seats = -(-self.tokens * self.experts_per_token // n)
        return jax.ShapeDtypeStruct((n, seats, self.width), jnp.bfloat16)


def traffic_of(
    collective: str, sent: int, size: int, n: int, stride: int, network: Network
) -> Traffic:
    """One call; a send goes to the next on the axis, all others to all on it."""
    if not sent:
        return Traffic(0.0)
    host = network.per_host
    if collective == "send":
        crossing = min(stride, host) if stride * n > host else 0
        inside = 0.0 if crossing == host else float(sent)
        line, steps = float(crossing * sent), int(inside > 0)
        return Traffic(sent, line, int(line > 0), inside, steps, 8.0 * size)
    near = min(n, max(1, host // stride))  # workers of the axis on one host
    shots = 2 if collective in ("copy", "all_reduce") else 1
    line = host * sent * (n - near) / (n - 1)
    inside = sent * (near - 1) / (n - 1)
    coded = 4.0 * size * (3 + 1 / n if shots == 2 else 2)
    return Traffic(sent, line, shots * (near < n), inside, shots * (near > 1), coded)
