"""What `relaxjax bench heterogeneity` compares: methods and their graphs."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from relaxjax import topology
from relaxjax.compression import quantize, sign
from relaxjax.decentralized._dcd_psgd import dcd_psgd
from relaxjax.decentralized._deep_squeeze import deep_squeeze
from relaxjax.decentralized._exact_diffusion import exact_diffusion
from relaxjax.decentralized._gossip import combine_then_adapt, gossip
from relaxjax.decentralized._gradient_tracking import gradient_tracking
from relaxjax.decentralized._moniqua import moniqua
from relaxjax.decentralized._push_sum import push_sum
from relaxjax.decentralized._quasi_global_momentum import quasi_global_momentum
from relaxjax.decentralized._relay_sum import relay_sum
from relaxjax.gradients._all_reduce import all_reduce

AXIS = "data"
MOMENTUM = 0.9
Make = Callable[[Any, int], optax.GradientTransformation]


class Entry(NamedTuple):
    """A method.

    Attributes:
      name: with its graph, as in tables.
      make: from a learning rate and the number of workers to the transformation.
      corrected: whether data that differ leave no bias, even at a constant rate.
      momentum: whether it has momentum, and so a tenth of the learning rates.
    """

    name: str
    make: Make
    corrected: bool = False
    momentum: bool = False


def _after(method: Any, graph: Any, **knobs: Any) -> Make:
    return lambda rate, n: optax.chain(optax.sgd(rate), method(AXIS, graph(n), **knobs))


def _tracked(graph: Any) -> Make:
    return lambda rate, n: optax.chain(
        gradient_tracking(AXIS, graph(n)), optax.sgd(rate), gossip(AXIS, graph(n))
    )


def _lazy_ring(n: int) -> topology.Topology:
    return topology.lazy(topology.ring(n))


def _torus(n: int) -> topology.Topology:
    side = math.isqrt(n)
    return topology.torus((side, n // side))


def _lazy_torus(n: int) -> topology.Topology:
    return topology.lazy(_torus(n))


_ring, _one_peer = topology.ring, topology.one_peer_exponential
ENTRIES = (
    Entry("all_reduce", lambda rate, n: optax.chain(all_reduce(AXIS), optax.sgd(rate))),
    Entry("gossip, ring", _after(gossip, _ring)),
    Entry("gossip, torus", _after(gossip, _torus)),
    Entry("gossip, exponential", _after(gossip, topology.exponential)),
    Entry("gossip, one-peer exponential", _after(gossip, _one_peer)),
    Entry("combine_then_adapt, ring", _after(combine_then_adapt, _ring)),
    Entry("push_sum, one-peer exponential", _after(push_sum, _one_peer)),
    Entry("exact_diffusion, lazy ring", _after(exact_diffusion, _lazy_ring), True),
    Entry("exact_diffusion, lazy torus", _after(exact_diffusion, _lazy_torus), True),
    Entry("gradient_tracking, ring", _tracked(_ring), True),
    Entry("gradient_tracking, one-peer exponential", _tracked(_one_peer), True),
    Entry("relay_sum, chain", _after(relay_sum, topology.chain), True),
    Entry("relay_sum, binary tree", _after(relay_sum, topology.binary_tree), True),
    Entry("CHOCO in signs, ring", _after(gossip, _ring, compressor=sign())),
    Entry("dcd_psgd in 8 bits, ring", _after(dcd_psgd, _ring, compressor=quantize(8))),
    Entry(
        "deep_squeeze in 8 bits, ring",
        _after(deep_squeeze, _ring, compressor=quantize(8)),
    ),
    Entry("moniqua in 8 bits, ring", _after(moniqua, _ring, theta=2.0)),
    Entry(
        "all_reduce, momentum",
        lambda rate, n: optax.chain(all_reduce(AXIS), optax.sgd(rate, MOMENTUM)),
        momentum=True,
    ),
    Entry(
        "gossip, ring, own momentum",
        lambda rate, n: optax.chain(optax.sgd(rate, MOMENTUM), gossip(AXIS, _ring(n))),
        momentum=True,
    ),
    Entry(
        "quasi_global_momentum, ring",
        _after(quasi_global_momentum, _ring, momentum=MOMENTUM),
        momentum=True,
    ),
)
