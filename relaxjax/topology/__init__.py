"""Who talks to whom: graphs over workers, as matrices and as permutations.

Start with `ring(n)` or `one_peer_exponential(n)`; each graph is a `Topology`.
"""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_base_graph": "base_graph",
        "_mixing": "mixes",
        "_one_peer": "one_peer_exponential one_peer_hypercube random_matching "
        "shift_one",
        "_of_weights": "from_column_stochastic from_matrix lazy metropolis",
        "_static": "binary_tree chain complete exponential hypercube ring star torus",
        "_topology": "Message Topology",
    },
    shared={
        "_rows": "SYMMETRIC TOPOLOGIES TREES",
        "_table": "table_of",
    },
)
