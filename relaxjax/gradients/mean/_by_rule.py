"""What `all_reduce(op=rule)` does by a rule of `relaxjax.merges`.

    by lengths                    a mean of scaled contributions     `mean._by_lengths`
    by coordinates, distances     rows of chunks                     `mean._merged`

Cost: stated in each.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._axis import AxisName
from relaxjax._core._tree import leaf_names
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

    def update(updates: Any, state: Any, weight: Any) -> tuple[Any, Any]:
        _require_real(updates, rule)
        return merged_over_workers(
            updates,
            state,
            weight,
            compressor,
            rule=rule,
            axis_name=axis_name,
            plan=plan,
            specs=specs,
            ordered=ordered,
        )

    return merging(update)


def _require_real(updates: Any, rule: Rule) -> None:
    for name, x in zip(leaf_names(updates), jax.tree.leaves(updates), strict=True):
        if jnp.issubdtype(x.dtype, jnp.complexfloating):
            raise ValueError(
                f"all_reduce: leaf {name!r} is {x.dtype}, and op={rule!r} merges real "
                "leaves only; use merges.clipped(), or reduce its parts"
            )
