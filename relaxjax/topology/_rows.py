"""Graphs by name, for any number of workers: what follows @ in a relaxation's name.

A row makes a graph available to `relaxjax train`, plans, checks, help and the docs.
"""

import math
from collections.abc import Callable, Mapping

from relaxjax import topology
from relaxjax.topology import Topology


def _squarest_torus(n: int) -> Topology:
    side = next(a for a in range(math.isqrt(n), 0, -1) if n % a == 0)
    return topology.torus((side, n // side))


TREES: Mapping[str, Callable[[int], Topology]] = {
    "chain": topology.chain,
    "binary_tree": topology.binary_tree,
    "star": topology.star,
}
SYMMETRIC: Mapping[str, Callable[[int], Topology]] = {
    "ring": topology.ring,
    "torus": _squarest_torus,
    "hypercube": topology.hypercube,
    "complete": topology.complete,
    **TREES,
}
TOPOLOGIES: Mapping[str, Callable[[int], Topology]] = {
    **SYMMETRIC,
    "exponential": topology.exponential,
    "one_peer_exponential": topology.one_peer_exponential,
    "one_peer_hypercube": topology.one_peer_hypercube,
    "random_matching": topology.random_matching,
    "shift_one": topology.shift_one,
    "base_graph": topology.base_graph,
}
