"""Collectives on one array over a named axis; they know nothing of optimizers.

Call them where the axis is bound: `jax.shard_map`, `jax.pmap`,
`jax.vmap(axis_name=...)`.
"""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_hierarchical_neighbors": "hierarchical_neighbor_change "
        "hierarchical_neighbor_wire_bytes",
        "_neighbors": "neighbor_change neighbor_change_wire_bytes neighbor_message "
        "neighbor_payloads",
        "coded._compressed_hierarchical": "compressed_hierarchical "
        "compressed_hierarchical_wire_bytes",
        "coded._compressed_one_shot": "compressed_one_shot "
        "compressed_one_shot_wire_bytes",
        "coded._compressed_ring": "compressed_ring compressed_ring_wire_bytes",
        "coded._compressed_two_level": "compressed_two_level "
        "compressed_two_level_wire_bytes",
        "coded._compressed_two_shot": "compressed_two_shot "
        "compressed_two_shot_wire_bytes",
        "coded._linear_psum": "linear_psum linear_psum_wire_bytes",
        "exact._adasum": "adasum adasum_wire_bytes",
        "exact._bidirectional_ring": "bidirectional_ring_all_reduce "
        "bidirectional_ring_wire_bytes",
        "exact._halving_doubling": "halving_doubling_all_reduce "
        "halving_doubling_wire_bytes",
        "exact._hierarchical": "hierarchical_all_reduce hierarchical_wire_bytes",
        "exact._one_shot": "one_shot_all_reduce one_shot_wire_bytes",
        "exact._ring": "ring_all_reduce ring_wire_bytes",
        "exact._tree": "tree_all_reduce tree_wire_bytes",
        "exact._two_shot": "two_shot_all_reduce two_shot_wire_bytes",
        "wire._payload": "Codec Lossy",
    },
    shared={
        "_algorithms": "ALGORITHMS CODED_EXCHANGES EXACT_EXCHANGES",
        "coded._coded_slices": "gather_slices open_slices scatter_slices slice_widths",
        "coded._compressed_two_shot": "scattered",
        "exact._hierarchical": "two_axes",
        "wire._messages": "chunks_of distribute from_wire gather gather_all mapped "
        "landed send to_wire",
        "wire._one_by_one": "LeafTransfer after_on_cpu all_after once_arrived "
        "one_by_one",
        "wire._payload": "message opened places",
        "wire._shards": "Shard cut is_shard of_a_worker whole_leaves",
        "wire._straight_through": "straight_through",
        "wire._transfers": "ExactTransfers Kind in_turn plan_transfers whole",
    },
)
