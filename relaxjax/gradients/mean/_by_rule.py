"""What `all_reduce(op=rule)` does by a rule of `relaxjax.merges`.

    by lengths                    a mean of scaled contributions     `mean._by_lengths`
    by coordinates, distances     rows of chunks                     `mean._merged`

Cost: stated in each.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from relaxjax._core._axis import AxisName
from relaxjax._core.traced._marks import merging_by
from relaxjax.compression import Compressor
from relaxjax.gradients.mean._by_lengths import Update, by_lengths
from relaxjax.gradients.mean._merged import merged_over_workers
from relaxjax.merges import Rule, looks_at


def merged_by(
    rule: Rule,
    mean: Update,
    compressor: Compressor | None,
    *,
    axis_name: AxisName,
    plan: Callable[[Any], Any],
    specs: Any,
    ordered: bool,
) -> Update:
    """The merge of updates; `mean` is the weighted mean of an `all_reduce`."""
    merging = merging_by(rule.name)
    if looks_at(rule) == "lengths":
        return merging(by_lengths(rule, axis_name, mean, specs))

    update = partial(
        merged_over_workers,
        compressor=compressor,
        rule=rule,
        axis_name=axis_name,
        plan=plan,
        specs=specs,
        ordered=ordered,
    )
    return merging(update)
