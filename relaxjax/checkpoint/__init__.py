"""Checkpoints of training state, and state of another number of workers.

The marks say what a field of a state is; see `relaxjax.checkpoint.MEAN`.
"""

from relaxjax._core._merge_rules import (
    EQUAL,
    MEAN,
    RESET,
    SHARD,
    SUM,
    Leaf,
    Mark,
    rebuild,
    refuse,
)
from relaxjax.checkpoint._checkpoints import Checkpoints
from relaxjax.checkpoint._plan import plan_of
from relaxjax.checkpoint._resize import Resized, resized

__all__ = [
    "EQUAL",
    "MEAN",
    "RESET",
    "SHARD",
    "SUM",
    "Checkpoints",
    "Leaf",
    "Mark",
    "Resized",
    "plan_of",
    "rebuild",
    "refuse",
    "resized",
]
