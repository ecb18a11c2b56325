# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.collectives._adasum import adasum as adasum
from relaxjax.collectives._adasum import adasum_wire_bytes as adasum_wire_bytes
from relaxjax.collectives._algorithms import ALGORITHMS as ALGORITHMS
from relaxjax.collectives._algorithms import CODED_EXCHANGES as CODED_EXCHANGES
from relaxjax.collectives._algorithms import EXACT_EXCHANGES as EXACT_EXCHANGES
from relaxjax.collectives._bidirectional_ring import (
    bidirectional_ring_all_reduce as bidirectional_ring_all_reduce,
)
from relaxjax.collectives._bidirectional_ring import (
    bidirectional_ring_wire_bytes as bidirectional_ring_wire_bytes,
)
from relaxjax.collectives._coded_slices import gather_slices as gather_slices
from relaxjax.collectives._coded_slices import open_slices as open_slices
from relaxjax.collectives._coded_slices import scatter_slices as scatter_slices
from relaxjax.collectives._coded_slices import slice_widths as slice_widths
from relaxjax.collectives._compressed_hierarchical import (
    compressed_hierarchical as compressed_hierarchical,
)
from relaxjax.collectives._compressed_hierarchical import (
    compressed_hierarchical_wire_bytes as compressed_hierarchical_wire_bytes,
)
from relaxjax.collectives._compressed_one_shot import (
    compressed_one_shot as compressed_one_shot,
)
from relaxjax.collectives._compressed_one_shot import (
    compressed_one_shot_wire_bytes as compressed_one_shot_wire_bytes,
)
from relaxjax.collectives._compressed_ring import compressed_ring as compressed_ring
from relaxjax.collectives._compressed_ring import (
    compressed_ring_wire_bytes as compressed_ring_wire_bytes,
)
from relaxjax.collectives._compressed_two_level import (
    compressed_two_level as compressed_two_level,
)
from relaxjax.collectives._compressed_two_level import (
    compressed_two_level_wire_bytes as compressed_two_level_wire_bytes,
)
from relaxjax.collectives._compressed_two_shot import (
    compressed_two_shot as compressed_two_shot,
)
from relaxjax.collectives._compressed_two_shot import (
    compressed_two_shot_wire_bytes as compressed_two_shot_wire_bytes,
)
from relaxjax.collectives._compressed_two_shot import scattered as scattered
from relaxjax.collectives._halving_doubling import (
    halving_doubling_all_reduce as halving_doubling_all_reduce,
)
from relaxjax.collectives._halving_doubling import (
    halving_doubling_wire_bytes as halving_doubling_wire_bytes,
)
from relaxjax.collectives._hierarchical import (
    hierarchical_all_reduce as hierarchical_all_reduce,
)
from relaxjax.collectives._hierarchical import (
    hierarchical_wire_bytes as hierarchical_wire_bytes,
)
from relaxjax.collectives._hierarchical import two_axes as two_axes
from relaxjax.collectives._hierarchical_neighbors import (
    hierarchical_neighbor_change as hierarchical_neighbor_change,
)
from relaxjax.collectives._hierarchical_neighbors import (
    hierarchical_neighbor_wire_bytes as hierarchical_neighbor_wire_bytes,
)
from relaxjax.collectives._linear_psum import linear_psum as linear_psum
from relaxjax.collectives._linear_psum import (
    linear_psum_wire_bytes as linear_psum_wire_bytes,
)
from relaxjax.collectives._messages import chunks_of as chunks_of
from relaxjax.collectives._messages import distribute as distribute
from relaxjax.collectives._messages import from_wire as from_wire
from relaxjax.collectives._messages import gather as gather
from relaxjax.collectives._messages import gather_all as gather_all
from relaxjax.collectives._messages import send as send
from relaxjax.collectives._messages import to_wire as to_wire
from relaxjax.collectives._neighbors import neighbor_change as neighbor_change
from relaxjax.collectives._neighbors import (
    neighbor_change_wire_bytes as neighbor_change_wire_bytes,
)
from relaxjax.collectives._neighbors import neighbor_message as neighbor_message
from relaxjax.collectives._neighbors import neighbor_payloads as neighbor_payloads
from relaxjax.collectives._one_by_one import LeafTransfer as LeafTransfer
from relaxjax.collectives._one_by_one import after_on_cpu as after_on_cpu
from relaxjax.collectives._one_by_one import all_after as all_after
from relaxjax.collectives._one_by_one import once_arrived as once_arrived
from relaxjax.collectives._one_by_one import one_by_one as one_by_one
from relaxjax.collectives._one_shot import one_shot_all_reduce as one_shot_all_reduce
from relaxjax.collectives._one_shot import one_shot_wire_bytes as one_shot_wire_bytes
from relaxjax.collectives._payload import Codec as Codec
from relaxjax.collectives._payload import Lossy as Lossy
from relaxjax.collectives._payload import message as message
from relaxjax.collectives._payload import opened as opened
from relaxjax.collectives._payload import places as places
from relaxjax.collectives._ring import ring_all_reduce as ring_all_reduce
from relaxjax.collectives._ring import ring_wire_bytes as ring_wire_bytes
from relaxjax.collectives._shards import Shard as Shard
from relaxjax.collectives._shards import cut as cut
from relaxjax.collectives._shards import is_shard as is_shard
from relaxjax.collectives._shards import of_a_worker as of_a_worker
from relaxjax.collectives._shards import whole_leaves as whole_leaves
from relaxjax.collectives._straight_through import straight_through as straight_through
from relaxjax.collectives._transfers import ExactTransfers as ExactTransfers
from relaxjax.collectives._transfers import Kind as Kind
from relaxjax.collectives._transfers import in_turn as in_turn
from relaxjax.collectives._transfers import plan_transfers as plan_transfers
from relaxjax.collectives._transfers import whole as whole
from relaxjax.collectives._tree import tree_all_reduce as tree_all_reduce
from relaxjax.collectives._tree import tree_wire_bytes as tree_wire_bytes
from relaxjax.collectives._two_shot import two_shot_all_reduce as two_shot_all_reduce
from relaxjax.collectives._two_shot import two_shot_wire_bytes as two_shot_wire_bytes

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
