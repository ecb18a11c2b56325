"""Who talks to whom: graphs over workers, as matrices and as permutations.

Start with `ring(n)` or `one_peer_exponential(n)`; each graph is a `Topology`.
"""

from relaxjax.topology._base_graph import base_graph
from relaxjax.topology._one_peer import (
    one_peer_exponential,
    one_peer_hypercube,
    random_matching,
    shift_one,
)
from relaxjax.topology._static import (
    binary_tree,
    chain,
    complete,
    exponential,
    from_column_stochastic,
    from_matrix,
    hypercube,
    lazy,
    metropolis,
    ring,
    star,
    torus,
)
from relaxjax.topology._topology import Message, Topology

__all__ = [
    "Message",
    "Topology",
    "base_graph",
    "binary_tree",
    "chain",
    "complete",
    "exponential",
    "from_column_stochastic",
    "from_matrix",
    "hypercube",
    "lazy",
    "metropolis",
    "one_peer_exponential",
    "one_peer_hypercube",
    "random_matching",
    "ring",
    "shift_one",
    "star",
    "torus",
]
