# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.merges._by_rank import median as median
from relaxjax.merges._by_rank import trimmed as trimmed
from relaxjax.merges._centered_clip import centered_clip as centered_clip
from relaxjax.merges._clipped import clipped as clipped
from relaxjax.merges._geometric_median import geometric_median as geometric_median
from relaxjax.merges._nearest import nearest as nearest
from relaxjax.merges._presence import presence as presence
from relaxjax.merges._presence import squares_of as squares_of
from relaxjax.merges._rda import rda as rda
from relaxjax.merges._rule import Rule as Rule
from relaxjax.merges._rule import require_rule as require_rule
from relaxjax.merges._rules import factors_of as factors_of
from relaxjax.merges._rules import looks_at as looks_at
from relaxjax.merges._rules import merge_rows as merge_rows
from relaxjax.merges._rules import merge_shards as merge_shards
from relaxjax.merges._rules import merged as merged
from relaxjax.merges._rules import of_length as of_length
from relaxjax.merges._rules import rule_of as rule_of
from relaxjax.merges._rules import unless_all_broken as unless_all_broken
from relaxjax.merges._spelled import spelled as spelled

__all__ = [
    "Rule",
    "centered_clip",
    "clipped",
    "geometric_median",
    "median",
    "merged",
    "nearest",
    "rda",
    "trimmed",
]
