"""Checkpoints of training state, and state of another number of workers.

The marks say what a field of a state is; see `relaxjax.checkpoint.MEAN`.
"""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_checkpoints": "Checkpoints",
        "_plan": "plan_of",
        "_resize": "Resized resized",
        "relaxjax._core._merge_rules": "EQUAL Leaf MEAN Mark RESET SHARD SUM rebuild "
        "refuse",
    },
)
