# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax._core._merge_rules import EQUAL as EQUAL
from relaxjax._core._merge_rules import MEAN as MEAN
from relaxjax._core._merge_rules import RESET as RESET
from relaxjax._core._merge_rules import SHARD as SHARD
from relaxjax._core._merge_rules import SUM as SUM
from relaxjax._core._merge_rules import Leaf as Leaf
from relaxjax._core._merge_rules import MergeRule as MergeRule
from relaxjax._core._merge_rules import rebuild as rebuild
from relaxjax._core._merge_rules import refuse as refuse
from relaxjax.checkpoint._checkpoints import Checkpoints as Checkpoints
from relaxjax.checkpoint._params import restore_params as restore_params
from relaxjax.checkpoint._plan import ON_ANY_MESH as ON_ANY_MESH
from relaxjax.checkpoint._plan import plan_of as plan_of
from relaxjax.checkpoint._reader import latest as latest
from relaxjax.checkpoint._resize import Resized as Resized
from relaxjax.checkpoint._resize import resized as resized

__all__ = [
    "EQUAL",
    "MEAN",
    "RESET",
    "SHARD",
    "SUM",
    "Checkpoints",
    "Leaf",
    "MergeRule",
    "Resized",
    "latest",
    "plan_of",
    "rebuild",
    "refuse",
    "resized",
    "restore_params",
]
