"""Collectives on one array over a named axis; they know nothing of optimizers.

Call them where the axis is bound: `jax.shard_map`, `jax.pmap`,
`jax.vmap(axis_name=...)`.
"""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_adasum": "adasum adasum_wire_bytes",
        "_bidirectional_ring": "bidirectional_ring_all_reduce "
        "bidirectional_ring_wire_bytes",
        "_compressed_hierarchical": "compressed_hierarchical "
        "compressed_hierarchical_wire_bytes",
        "_compressed_one_shot": "compressed_one_shot compressed_one_shot_wire_bytes",
        "_compressed_ring": "compressed_ring compressed_ring_wire_bytes",
        "_compressed_two_level": "compressed_two_level compressed_two_level_wire_bytes",
        "_compressed_two_shot": "compressed_two_shot compressed_two_shot_wire_bytes",
        "_halving_doubling": "halving_doubling_all_reduce halving_doubling_wire_bytes",
        "_hierarchical": "hierarchical_all_reduce hierarchical_wire_bytes",
        "_hierarchical_neighbors": "hierarchical_neighbor_change "
        "hierarchical_neighbor_wire_bytes",
        "_linear_psum": "linear_psum linear_psum_wire_bytes",
        "_neighbors": "neighbor_change neighbor_change_wire_bytes neighbor_message "
        "neighbor_payloads",
        "_one_shot": "one_shot_all_reduce one_shot_wire_bytes",
        "_payload": "Codec Lossy",
        "_ring": "ring_all_reduce ring_wire_bytes",
        "_tree": "tree_all_reduce tree_wire_bytes",
        "_two_shot": "two_shot_all_reduce two_shot_wire_bytes",
    },
    shared={
        "_algorithms": "ALGORITHMS CODED_EXCHANGES EXACT_EXCHANGES",
        "_compressed_two_shot": "scattered",
        "_hierarchical": "two_axes",
        "_coded_slices": "gather_slices open_slices scatter_slices slice_widths",
        "_messages": "chunks_of distribute from_wire gather gather_all send to_wire",
        "_payload": "message opened places",
        "_shards": "Shard cut is_shard of_a_worker whole_leaves",
        "_one_by_one": "LeafTransfer after_on_cpu all_after once_arrived one_by_one",
        "_straight_through": "straight_through",
        "_transfers": "ExactTransfers Kind in_turn plan_transfers whole",
    },
)
