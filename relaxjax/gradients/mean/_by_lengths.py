"""A mean over the workers, of contributions scaled by the lengths of all of them.

    l_i = |x_i| leaf by leaf, w_i           (each worker's own)
    l, w of all workers                     (gather_all: one small message)
    s, w = rule(l, w)                       (the same on all workers)
    D = mean by w of s_i x_i                (any reducer, with any code)

A worker that is not finite has w = 0, and is absent from the mean. If no finite one is
left, D is NaN. Codes and their feedback see what is scaled. The rules are those of
`relaxjax.merges` that look at lengths: `clipped` and `rda`.

Cost: that of the mean with weights, and a float32 for each leaf and worker, gathered.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName
from relaxjax._core._tree import wide
from relaxjax._core.layouts._sharding import parts_over, whole_sum
from relaxjax.collectives import gather_all
from relaxjax.merges import (
    Rule,
    factors_of,
    of_length,
    presence,
    squares_of,
    unless_all_broken,
)

Update = Callable[[Any, Any, Any], tuple[Any, Any]]
"""From updates, a state and a weight to the mean and the next state."""


def by_lengths(
    rule: Rule, axis_name: AxisName, mean: Update, specs: Any = None
) -> Update:
    """`mean`, of what the rule makes of the updates and weights."""

    def update(updates: Any, state: Any, weight: Any) -> tuple[Any, Any]:
        leaves, tree = jax.tree.flatten(updates)
        if not leaves:
            return mean(updates, state, weight)
        lengths, weights = lengths_of_all(updates, weight, axis_name, specs)
        here = presence(weights, lengths)
        how = factors_of(rule, lengths, weights, here)
        me = lax.axis_index(axis_name)
        scaled = [_times(x, s) for x, s in zip(leaves, how.factors[me], strict=True)]
        out, state = mean(tree.unflatten(scaled), state, how.weights[me])
        if how.lengths is not None:
            means, own = jax.tree.leaves(out), jnp.sqrt(_squares(out, specs))
            of = zip(means, own, how.lengths, strict=True)
            out = tree.unflatten([of_length(x, now, then) for x, now, then in of])
        return jax.tree.map(unless_all_broken(weights, here), out), state

    return update


def lengths_of_all(
    updates: Any, weight: Any, axis_name: AxisName, specs: Any
) -> tuple[jax.Array, jax.Array]:
    """float32[n, leaves] and float32[n]: every worker's lengths, and its weight."""
    w = jnp.ones((), jnp.float32) if weight is None else weight
    own = jnp.append(jnp.sqrt(_squares(updates, specs)), jnp.asarray(w, jnp.float32))
    rows = gather_all(own, axis_name)
    return rows[:, :-1], rows[:, -1]


def _squares(tree: Any, specs: Any) -> jax.Array:
    """float32[leaves]: |x|^2 of each leaf, of all its parts."""
    pairs = zip(jax.tree.leaves(tree), parts_over(tree, specs), strict=True)
    return jnp.stack(
        [whole_sum(squares_of(x), axes).astype(jnp.float32) for x, axes in pairs]
    )


def _times(x: jax.Array, factor: jax.Array) -> jax.Array:
    return (x.astype(wide(x.dtype)) * factor).astype(x.dtype)
