"""Nearest-neighbor mixing (NNM): each becomes the mean of those around it; then a rule.

Source: Allouah et al. 2023 (2302.01772). Of the m present, with f that may be wrong:

    y_i = mean of the m - f nearest to x_i, itself included;  D = rule(y_1, .., y_m)

It makes honest workers that differ look alike, before a rule that takes differences for
attacks. Ties go to the worker with the lower number. Law: equivariant to scale, shift
and rotation; at most f wrong in an honest y_i, each nearer to x_i than an honest one.

Cost: one Gram matrix (`relaxjax.merges._gram`), n^2 d / n products, and the rule.
"""

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._checks import require_whole
from relaxjax.merges._gram import Shards, Total, centered, gram, pairwise
from relaxjax.merges._rule import Rule, require_rule


def nearest(f: int, rule: Rule) -> Rule:
    """A rule on means of neighbors, for workers whose data differ.

    It ignores weights. Distances are of all leaves together.

    Args:
      f: how many workers may be wrong, 0 or more; of m present, the m - f nearest are
        averaged, one at least.
      rule: what merges the means: `median()`, `trimmed(b)`, `geometric_median(steps)`
        or `centered_clip(radius, steps)`.

    Returns:
      A rule for `merge=` and `op=`, of real leaves, with dense codes or none.

    Raises:
      TypeError: `rule` is not a rule.
      ValueError: f is not a whole number of 0 or more; another rule.

    Example:
      >>> import numpy as np
      >>> from relaxjax import merges
      >>> x = np.array([[1.0, 0], [2, 1], [1, 2], [2, 1], [100, -100]])
      >>> print(merges.merged(merges.nearest(1, merges.median()), x))
      [1.5 1. ]
    """
    require_whole("nearest", "f", f, 0)
    require_rule("nearest", "rule", rule)
    if rule.name in ("clipped", "rda", "nearest"):
        raise ValueError(
            f"nearest: rule={rule!r} must be median(), trimmed(b), geometric_median() "
            "or centered_clip(radius): the other rules are of each worker's own "
            "contribution, and nearest of nearest is one mean"
        )
    return Rule("nearest", (("f", int(f)), ("rule", rule)))


def neighbors(shards: Shards, here: jax.Array, total: Total, f: int) -> list[jax.Array]:
    """y of each shard, in which the absent are 0."""
    middles, y = centered(shards, here)
    d = jnp.where(here, pairwise(gram(y, total)), jnp.inf)
    d = jnp.where(jnp.eye(len(here), dtype=bool), -1, d)  # itself before any other
    order = jnp.argsort(d, axis=1, stable=True)
    ranks = jnp.argsort(order, axis=1)
    count = jnp.maximum(here.sum() - f, 1)
    mix = jnp.where((ranks < count) & here[:, None], 1 / count, 0).astype(d.dtype)
    exact = lax.Precision.HIGHEST
    pairs = zip(middles, y, strict=True)
    return [
        jnp.where(here[:, None], r[None] + jnp.matmul(mix, x, precision=exact), 0)
        for r, x in pairs
    ]
