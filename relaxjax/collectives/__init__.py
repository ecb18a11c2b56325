"""Collectives on one array over a named axis; they know nothing of optimizers."""

from relaxjax.collectives._adasum import adasum, adasum_wire_bytes
from relaxjax.collectives._bidirectional_ring import (
    bidirectional_ring_all_reduce,
    bidirectional_ring_wire_bytes,
)
from relaxjax.collectives._halving_doubling import (
    halving_doubling_all_reduce,
    halving_doubling_wire_bytes,
)
from relaxjax.collectives._hierarchical import (
    hierarchical_all_reduce,
    hierarchical_wire_bytes,
)
from relaxjax.collectives._one_shot import one_shot_all_reduce, one_shot_wire_bytes
from relaxjax.collectives._ring import ring_all_reduce, ring_wire_bytes
from relaxjax.collectives._tree import tree_all_reduce, tree_wire_bytes
from relaxjax.collectives._two_shot import two_shot_all_reduce, two_shot_wire_bytes

__all__ = [
    "adasum",
    "adasum_wire_bytes",
    "bidirectional_ring_all_reduce",
    "bidirectional_ring_wire_bytes",
    "halving_doubling_all_reduce",
    "halving_doubling_wire_bytes",
    "hierarchical_all_reduce",
    "hierarchical_wire_bytes",
    "one_shot_all_reduce",
    "one_shot_wire_bytes",
    "ring_all_reduce",
    "ring_wire_bytes",
    "tree_all_reduce",
    "tree_wire_bytes",
    "two_shot_all_reduce",
    "two_shot_wire_bytes",
]
