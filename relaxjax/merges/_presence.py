"""Who counts in a merge, and how much: presence, medians, capped weights.

    present    0 < w < inf, and |x| < 1e18: what is longer, or not finite, has no square
               in float32, and is taken for absent before anything is multiplied;
               below 1e-18 squares vanish, and lengths and distances are 0
    median     the lower one, number (m - 1) // 2 of the m present: of two lengths the
               shorter, so that it is an honest one's as long as half of them are
    capped     min(w / median w, cap): 1 for each where weights are equal

Law: capped weights lie in [0, cap], and more than half of those present have 1 or more.
So f workers, whatever they report, have at most f cap / (m // 2 + 1) of the weight.

Source: norms relative to the median, with the lower one, as in Templar
(one-covenant/templar); a cap of reported weights, as HPE Swarm Learning has.
"""

import jax
import jax.numpy as jnp

from relaxjax._core._tree import wide
from relaxjax.merges._sorted import lower_median

LONGEST = 1e18
"""A contribution's length from which it counts as absent: its square is 1e36."""


def presence(weights: jax.Array, lengths: jax.Array) -> jax.Array:
    """bool[n]: who counts, from weights [n] and lengths [n, parts]."""
    weighs = (weights > 0) & jnp.isfinite(weights)
    return weighs & (jnp.linalg.norm(lengths, axis=1) < LONGEST)  # False for a NaN


def capped(weights: jax.Array, here: jax.Array, cap: float | None) -> jax.Array:
    """float32[n]: weights relative to their median, up to `cap`; 0 for the absent."""
    relative = over(jnp.where(here, weights, 0), lower_median(weights, here))
    return relative if cap is None else jnp.minimum(relative, cap)


def over(x: jax.Array, total: jax.Array) -> jax.Array:
    """A quotient; 0 over 0."""
    return x / jnp.where(total == 0, 1, total)


def squares_of(x: jax.Array) -> jax.Array:
    """|x|^2 in float32 or wider; infinite or NaN where a square or an element is."""
    return jnp.sum(jnp.square(jnp.abs(x.astype(wide(x.dtype)))))
