"""What one worker of a split model calls in a step, and what a call takes.

Calls of a step with L layers, of which a worker computes ceil(L / pipeline):

    tensor     2 a layer: `copy` in front, `all_reduce` behind, of [tokens, width]
    expert     2 a layer: `all_to_all` there and back, of [tokens k, width], k experts
               for each token
    pipeline   1: `send` of [tokens, width], over all microbatches

The axes lie in this order: neighbors on "tensor" are neighbors on a host. All workers
of a host send over its link at once, and the busiest host is waited for. A group of n
workers at distances `stride` takes a block of n stride workers. Hosts cut blocks, and a
part of l workers of a block, l = q stride + r, has r groups with q + 1 workers there
and stride - r with q:

    messages out of the part = r (q + 1) (n - q - 1) + (stride - r) q (n - q)

Encoding and decoding pass all elements once each; a sum encodes them, decodes n parts
of 1/n, encodes its own part and decodes all.

Cost: O(places of a host in a block), 2^16 of them at most.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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
        line = float(sent * _sends_out(host, n, stride))
        inside = float(sent) if stride < host else 0.0
        return Traffic(sent, line, int(line > 0), inside, int(inside > 0), 8.0 * size)
    out = _messages_out(host, n, stride)
    near = -(-min(host, n * stride) // stride)  # most workers of a group on one host
    shots = 2 if collective in ("copy", "all_reduce") else 1
    line = sent * out / (n - 1)
    inside = sent * (near - 1) / (n - 1)
    coded = 4.0 * size * (3 + 1 / n if shots == 2 else 2)
    return Traffic(sent, line, shots * (out > 0), inside, shots * (near > 1), coded)


def _places(host: int, block: int) -> np.ndarray:
    """Where hosts begin in a block; of very many places, some."""
    step = math.gcd(host, block)
    return np.arange(0, block, step * -(-block // (step * 2**16)))


def _messages_out(host: int, n: int, stride: int) -> int:
    """Messages between hosts from the busiest one, if all in a group send to all."""
    block = n * stride
    first = np.minimum(host, block - _places(host, block))
    last = (host - first) % block

    def out(part: np.ndarray) -> np.ndarray:
        q, r = part // stride, part % stride
        return r * (q + 1) * (n - q - 1) + (stride - r) * q * (n - q)

    return int(np.max(out(first) + out(last)))


def _sends_out(host: int, n: int, stride: int) -> int:
    """Messages between hosts from the busiest one, if each sends to the next one.

    The last `stride` workers of a host would send out; those at the end of their block
    have nobody to send to.
    """
    block, may = n * stride, min(stride, host)
    end = block - _places(host, block)
    silent = np.clip(end - (block - stride), 0, may) + np.maximum(may - end, 0)
    return int(np.max(may - silent))
