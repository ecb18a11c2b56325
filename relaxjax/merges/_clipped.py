"""Clipping to the median norm, and capped weights: the rule to begin with.

Source: the gradient clipping of Templar (one-covenant/templar, per tensor), which
Covenant-72B ran with 70 open peers (2603.08163); weights as MediSwarm keeps them beside
it. With c the lower median of |x_i| over the m who are present:

    D = sum_i w_i min(1, c / |x_i|) x_i / sum_i w_i,   w_i <- min(w_i, cap median w)

Law: |D| <= c, and f wrong workers move D by f cap c / (m // 2 + 1) at most; c is not
above the longest honest contribution while half of those present are honest. Where
all lengths are equal, D is the mean to the bit. D(s x) = s D(x).

By leaf, an attack on one tensor cannot hide in the length of all, and each tensor gives
the wrong worker its whole radius; a leaf that less than half of them move stays.

Stands: NaN, infinity, x1000, reported weights. Not: a flipped sign at a normal length.

Cost: a length for each leaf and worker, gathered, before any all-reduce of any code.
"""

from typing import Any

import jax
import jax.numpy as jnp

from relaxjax.merges._presence import capped
from relaxjax.merges._rule import Rule, require_cap
from relaxjax.merges._sorted import lower_median

BY = ("leaf", "all")


def clipped(by: str = "leaf", cap: float | None = 2.0) -> Rule:
    """The mean of contributions, none of which is longer than their median.

    It stands what is not finite, contributions of any length, and reported weights of
    any size. It does not see a flipped sign.

    Args:
      by: "leaf", the lengths of each leaf by themselves; "all", of all leaves together.
      cap: how many times the median of those present a weight may be, 1 or more; None
        for any.

    Returns:
      A rule for `merge=` and `op=`, with any compressor and any algorithm.

    Raises:
      ValueError: another `by`; a cap below 1.

    Example:
      >>> import numpy as np
      >>> from relaxjax import merges
      >>> x = np.array([[1.0, 0], [2, 1], [1, 2], [2, 1], [100, -100]])
      >>> print(merges.merged(merges.clipped(), x).round(4))
      [1.5162 0.4838]
    """
    if by not in BY:
        raise ValueError(f"clipped: by={by!r} must be one of {', '.join(BY)}")
    return Rule("clipped", (("by", by), ("cap", require_cap("clipped", cap))))


def clip(
    lengths: jax.Array, weights: jax.Array, here: jax.Array, *, by: str, cap: Any
) -> tuple[jax.Array, jax.Array, None]:
    """Factors [n, leaves], weights [n], and that the mean stays as long as it is."""
    of = lengths if by == "leaf" else jnp.linalg.norm(lengths, axis=1, keepdims=True)
    most = lower_median(of, here)[None]
    factors = jnp.where(of > most, most / of, 1)
    return jnp.broadcast_to(factors, lengths.shape), capped(weights, here, cap), None
