# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.topology._base_graph import base_graph as base_graph
from relaxjax.topology._mixing import mixes as mixes
from relaxjax.topology._of_weights import (
    from_column_stochastic as from_column_stochastic,
)
from relaxjax.topology._of_weights import from_matrix as from_matrix
from relaxjax.topology._of_weights import lazy as lazy
from relaxjax.topology._of_weights import metropolis as metropolis
from relaxjax.topology._one_peer import one_peer_exponential as one_peer_exponential
from relaxjax.topology._one_peer import one_peer_hypercube as one_peer_hypercube
from relaxjax.topology._one_peer import random_matching as random_matching
from relaxjax.topology._one_peer import shift_one as shift_one
from relaxjax.topology._rows import SYMMETRIC as SYMMETRIC
from relaxjax.topology._rows import TOPOLOGIES as TOPOLOGIES
from relaxjax.topology._rows import TREES as TREES
from relaxjax.topology._static import binary_tree as binary_tree
from relaxjax.topology._static import chain as chain
from relaxjax.topology._static import complete as complete
from relaxjax.topology._static import exponential as exponential
from relaxjax.topology._static import hypercube as hypercube
from relaxjax.topology._static import ring as ring
from relaxjax.topology._static import star as star
from relaxjax.topology._static import torus as torus
from relaxjax.topology._table import table_of as table_of
from relaxjax.topology._topology import Message as Message
from relaxjax.topology._topology import Topology as Topology

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
    "mixes",
    "one_peer_exponential",
    "one_peer_hypercube",
    "random_matching",
    "ring",
    "shift_one",
    "star",
    "torus",
]
