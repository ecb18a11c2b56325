# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.collectives._algorithms import ALGORITHMS as ALGORITHMS
from relaxjax.collectives._algorithms import CODED_EXCHANGES as CODED_EXCHANGES
from relaxjax.collectives._algorithms import EXACT_EXCHANGES as EXACT_EXCHANGES
from relaxjax.collectives._hierarchical_neighbors import (
    hierarchical_neighbor_change as hierarchical_neighbor_change,
)
from relaxjax.collectives._hierarchical_neighbors import (
    hierarchical_neighbor_wire_bytes as hierarchical_neighbor_wire_bytes,
)
from relaxjax.collectives._neighbors import neighbor_change as neighbor_change
from relaxjax.collectives._neighbors import (
    neighbor_change_wire_bytes as neighbor_change_wire_bytes,
)
from relaxjax.collectives._neighbors import neighbor_message as neighbor_message
from relaxjax.collectives._neighbors import neighbor_payloads as neighbor_payloads
from relaxjax.collectives.coded._coded_slices import gather_slices as gather_slices
from relaxjax.collectives.coded._coded_slices import open_slices as open_slices
from relaxjax.collectives.coded._coded_slices import scatter_slices as scatter_slices
from relaxjax.collectives.coded._coded_slices import slice_widths as slice_widths
from relaxjax.collectives.coded._compressed_hierarchical import (
    compressed_hierarchical as compressed_hierarchical,
)
from relaxjax.collectives.coded._compressed_hierarchical import (
    compressed_hierarchical_wire_bytes as compressed_hierarchical_wire_bytes,
)
from relaxjax.collectives.coded._compressed_one_shot import (
    compressed_one_shot as compressed_one_shot,
)
from relaxjax.collectives.coded._compressed_one_shot import (
    compressed_one_shot_wire_bytes as compressed_one_shot_wire_bytes,
)
from relaxjax.collectives.coded._compressed_ring import (
    compressed_ring as compressed_ring,
)
from relaxjax.collectives.coded._compressed_ring import (
    compressed_ring_wire_bytes as compressed_ring_wire_bytes,
)
from relaxjax.collectives.coded._compressed_two_level import (
    compressed_two_level as compressed_two_level,
)
from relaxjax.collectives.coded._compressed_two_level import (
    compressed_two_level_wire_bytes as compressed_two_level_wire_bytes,
)
from relaxjax.collectives.coded._compressed_two_shot import (
    compressed_two_shot as compressed_two_shot,
)
from relaxjax.collectives.coded._compressed_two_shot import (
    compressed_two_shot_wire_bytes as compressed_two_shot_wire_bytes,
)
from relaxjax.collectives.coded._compressed_two_shot import scattered as scattered
from relaxjax.collectives.coded._linear_psum import linear_psum as linear_psum
from relaxjax.collectives.coded._linear_psum import (
    linear_psum_wire_bytes as linear_psum_wire_bytes,
)
from relaxjax.collectives.exact._adasum import adasum as adasum
from relaxjax.collectives.exact._adasum import adasum_wire_bytes as adasum_wire_bytes
from relaxjax.collectives.exact._bidirectional_ring import (
    bidirectional_ring_all_reduce as bidirectional_ring_all_reduce,
)
from relaxjax.collectives.exact._bidirectional_ring import (
    bidirectional_ring_wire_bytes as bidirectional_ring_wire_bytes,
)
from relaxjax.collectives.exact._halving_doubling import (
    halving_doubling_all_reduce as halving_doubling_all_reduce,
)
from relaxjax.collectives.exact._halving_doubling import (
    halving_doubling_wire_bytes as halving_doubling_wire_bytes,
)
from relaxjax.collectives.exact._hierarchical import (
    hierarchical_all_reduce as hierarchical_all_reduce,
)
from relaxjax.collectives.exact._hierarchical import (
    hierarchical_wire_bytes as hierarchical_wire_bytes,
)
from relaxjax.collectives.exact._hierarchical import two_axes as two_axes
from relaxjax.collectives.exact._one_shot import (
    one_shot_all_reduce as one_shot_all_reduce,
)
from relaxjax.collectives.exact._one_shot import (
    one_shot_wire_bytes as one_shot_wire_bytes,
)
from relaxjax.collectives.exact._ring import ring_all_reduce as ring_all_reduce
from relaxjax.collectives.exact._ring import ring_wire_bytes as ring_wire_bytes
from relaxjax.collectives.exact._tree import tree_all_reduce as tree_all_reduce
from relaxjax.collectives.exact._tree import tree_wire_bytes as tree_wire_bytes
from relaxjax.collectives.exact._two_shot import (
    two_shot_all_reduce as two_shot_all_reduce,
)
from relaxjax.collectives.exact._two_shot import (
    two_shot_wire_bytes as two_shot_wire_bytes,
)
from relaxjax.collectives.wire._messages import chunks_of as chunks_of
from relaxjax.collectives.wire._messages import distribute as distribute
from relaxjax.collectives.wire._messages import from_wire as from_wire
from relaxjax.collectives.wire._messages import gather as gather
from relaxjax.collectives.wire._messages import gather_all as gather_all
from relaxjax.collectives.wire._messages import landed as landed
from relaxjax.collectives.wire._messages import mapped as mapped
from relaxjax.collectives.wire._messages import send as send
from relaxjax.collectives.wire._messages import to_wire as to_wire
from relaxjax.collectives.wire._one_by_one import LeafTransfer as LeafTransfer
from relaxjax.collectives.wire._one_by_one import after_on_cpu as after_on_cpu
from relaxjax.collectives.wire._one_by_one import all_after as all_after
from relaxjax.collectives.wire._one_by_one import once_arrived as once_arrived
from relaxjax.collectives.wire._one_by_one import one_by_one as one_by_one
from relaxjax.collectives.wire._payload import Codec as Codec
from relaxjax.collectives.wire._payload import Lossy as Lossy
from relaxjax.collectives.wire._payload import message as message
from relaxjax.collectives.wire._payload import opened as opened
from relaxjax.collectives.wire._payload import places as places
from relaxjax.collectives.wire._shards import Shard as Shard
from relaxjax.collectives.wire._shards import cut as cut
from relaxjax.collectives.wire._shards import is_shard as is_shard
from relaxjax.collectives.wire._shards import of_a_worker as of_a_worker
from relaxjax.collectives.wire._shards import whole_leaves as whole_leaves
from relaxjax.collectives.wire._straight_through import (
    straight_through as straight_through,
)
from relaxjax.collectives.wire._transfers import ExactTransfers as ExactTransfers
from relaxjax.collectives.wire._transfers import Kind as Kind
from relaxjax.collectives.wire._transfers import in_turn as in_turn
from relaxjax.collectives.wire._transfers import plan_transfers as plan_transfers
from relaxjax.collectives.wire._transfers import whole as whole

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
