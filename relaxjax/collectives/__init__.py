"""Collectives on one array over a named axis; they know nothing of optimizers."""

from relaxjax.collectives._adasum import adasum, adasum_wire_bytes
from relaxjax.collectives._bidirectional_ring import (
    bidirectional_ring_all_reduce,
    bidirectional_ring_wire_bytes,
)
from relaxjax.collectives._compressed_hierarchical import (
    compressed_hierarchical,
    compressed_hierarchical_wire_bytes,
)
from relaxjax.collectives._compressed_one_shot import (
    compressed_one_shot,
    compressed_one_shot_wire_bytes,
)
from relaxjax.collectives._compressed_ring import (
    compressed_ring,
    compressed_ring_wire_bytes,
)
from relaxjax.collectives._compressed_two_level import (
    compressed_two_level,
    compressed_two_level_wire_bytes,
)
from relaxjax.collectives._compressed_two_shot import (
    compressed_two_shot,
    compressed_two_shot_wire_bytes,
)
from relaxjax.collectives._halving_doubling import (
    halving_doubling_all_reduce,
    halving_doubling_wire_bytes,
)
from relaxjax.collectives._hierarchical import (
    hierarchical_all_reduce,
    hierarchical_wire_bytes,
)
from relaxjax.collectives._hierarchical_neighbors import (
    hierarchical_neighbor_change,
    hierarchical_neighbor_wire_bytes,
)
from relaxjax.collectives._linear_psum import linear_psum, linear_psum_wire_bytes
from relaxjax.collectives._neighbors import (
    neighbor_change,
    neighbor_change_wire_bytes,
    neighbor_message,
    neighbor_payloads,
)
from relaxjax.collectives._one_shot import one_shot_all_reduce, one_shot_wire_bytes
from relaxjax.collectives._payload import Codec, Lossy
from relaxjax.collectives._ring import ring_all_reduce, ring_wire_bytes
from relaxjax.collectives._tree import tree_all_reduce, tree_wire_bytes
from relaxjax.collectives._two_shot import two_shot_all_reduce, two_shot_wire_bytes

__all__ = [
    "Codec",
    "Lossy",
    "adasum",
    "adasum_wire_bytes",
    "bidirectional_ring_all_reduce",
    "bidirectional_ring_wire_bytes",
    "compressed_hierarchical",
    "compressed_hierarchical_wire_bytes",
    "compressed_one_shot",
    "compressed_one_shot_wire_bytes",
    "compressed_ring",
    "compressed_ring_wire_bytes",
    "compressed_two_level",
    "compressed_two_level_wire_bytes",
    "compressed_two_shot",
    "compressed_two_shot_wire_bytes",
    "halving_doubling_all_reduce",
    "halving_doubling_wire_bytes",
    "hierarchical_all_reduce",
    "hierarchical_neighbor_change",
    "hierarchical_neighbor_wire_bytes",
    "hierarchical_wire_bytes",
    "linear_psum",
    "linear_psum_wire_bytes",
    "neighbor_change",
    "neighbor_change_wire_bytes",
    "neighbor_message",
    "neighbor_payloads",
    "one_shot_all_reduce",
    "one_shot_wire_bytes",
    "ring_all_reduce",
    "ring_wire_bytes",
    "tree_all_reduce",
    "tree_wire_bytes",
    "two_shot_all_reduce",
    "two_shot_wire_bytes",
]
