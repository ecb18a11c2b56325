"""Mean directions of median length: DiLoCo's "rda" that a wrong worker cannot lengthen.

Source: the merge of Decoupled DiLoCo (`relaxjax.local_updates.common._outer_merge`),
with the median in place of the mean of lengths. Leaf by leaf, phi(x) = x / |x|,
phi(0) = 0, c the lower median of |x_i|, or their weighted mean:

    D = c phi(sum_i w_i phi(x_i) / sum_i w_i),   w_i <- min(w_i, cap median w)

Law: |D| <= c, and |D| = c unless directions cancel (shorter than 1e-6), which give 0.

Stands, with "median": what `clipped` stands. Cost: as `clipped`.
"""

from typing import Any

import jax
import jax.numpy as jnp

from relaxjax.merges._presence import capped, over
from relaxjax.merges._rule import Rule, require_cap
from relaxjax.merges._sorted import lower_median

LENGTHS = ("median", "mean")


def rda(length: str = "median", cap: float | None = 2.0) -> Rule:
    """The mean of directions, as long as the median of the contributions, leaf by leaf.

    Args:
      length: "median"; or "mean", as in `merge="rda"`, which one worker can lengthen.
      cap: how many times the median of those present a weight may be, 1 or more; None
        for any.

    Returns:
      A rule for `merge=` and `op=`, with any compressor and any algorithm.

    Raises:
      ValueError: another `length`; a cap below 1.

    Example:
      >>> import numpy as np
      >>> from relaxjax import merges
      >>> print(merges.merged(merges.rda(), np.array([[3.0, 0], [0, 4], [0, 4e6]])))
      [1.7888544 3.5777087]
    """
    if length not in LENGTHS:
        raise ValueError(f"rda: length={length!r} must be one of {', '.join(LENGTHS)}")
    return Rule("rda", (("length", length), ("cap", require_cap("rda", cap))))


def radial(
    lengths: jax.Array, weights: jax.Array, here: jax.Array, *, length: str, cap: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Factors [n, leaves], weights [n], and the length [leaves] that the mean gets."""
    w = capped(weights, here, cap)
    if length == "median":
        own = lower_median(lengths, here)
    else:
        share = over(w, w.sum())[:, None]
        own = jnp.where(here[:, None], share * lengths, 0).sum(axis=0)
    return over(jnp.ones_like(lengths), lengths), w, own
