"""Checkpoints of training state, and its state on another number of workers.

Merge rules say how a field of a state merges; see `relaxjax.checkpoint.MEAN`.
"""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_checkpoints": "Checkpoints",
        "_params": "restore_params",
        "_plan": "plan_of",
        "_reader": "latest",
        "_resize": "Resized resized",
        "relaxjax._core._merge_rules": "EQUAL Leaf MEAN MergeRule RESET SHARD "
        "SUM rebuild refuse",
    },
    shared={"_plan": "ON_ANY_MESH"},
    deprecated={"Mark": "MergeRule"},
)
