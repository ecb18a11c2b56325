"""Centered clipping: from a common point, steps towards each worker of bounded length.

Source: Karimireddy et al. 2021 (2012.10333). From v = 0, T times over the m present:

    v <- v + (1/m) sum_k (x_k - v) min(1, tau / |x_k - v|)

Theirs begins at the last result. 0 is the common model where outer gradients or changes
are merged, so that the rule has no state there. Law: f wrong workers move v by
tau f / m a step at most; a tau that never bites is the mean; tau breaks scale. Each
present worker counts once.

Cost: one Gram matrix (`relaxjax.merges._gram`), with 0 as one more row.
"""

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax.merges._gram import Shards, Total, centered, gram, mixed
from relaxjax.merges._gram import to_mixture as squares_to
from relaxjax.merges._rule import Rule, require_number, require_steps

_TINY = 1e-30  # a square


def centered_clip(radius: float, steps: int = 1) -> Rule:
    """A point that each worker may pull by `radius` over their number, step by step.

    It bounds what any number of wrong workers do, and ignores weights. Distances are of
    all leaves together.

    Args:
      radius: tau, in units of what is merged, above 0: some times an honest worker's
        distance to the mean.
      steps: iterations from 0, 1 to 1000.

    Returns:
      A rule for `merge=` and `op=`, of real leaves, with dense codes or none.

    Raises:
      ValueError: a radius that is not above 0, steps outside of 1 to 1000.

    Example:
      >>> import numpy as np
      >>> from relaxjax import merges
      >>> x = np.array([[1.0, 0], [2, 1], [1, 2], [2, 1], [100, -100]])
      >>> print(merges.merged(merges.centered_clip(2.0), x)[0].round(2))
      1.38
    """
    require_number("centered_clip", "radius", radius, "a finite number above 0", 0)
    steps = require_steps("centered_clip", steps)
    return Rule("centered_clip", (("radius", float(radius)), ("steps", steps)))


def centered_clip_of(
    shards: Shards, here: jax.Array, total: Total, *, radius: float, steps: int
) -> list[jax.Array]:
    """The point, shard by shard of rows."""
    middles, y = centered(shards, here)
    pairs = zip(y, middles, strict=True)
    y = [jnp.concatenate([x, -r[None]]) for x, r in pairs]  # the last row is 0
    g = gram(y, total)
    m = jnp.maximum(here.sum(), 1).astype(g.dtype)
    pulls = jnp.append(here, False)

    def pulled(_: int, a: jax.Array) -> jax.Array:
        far = jnp.sqrt(jnp.maximum(squares_to(g, a), _TINY))
        s = jnp.where(pulls, jnp.minimum(1, radius / far), 0) / m
        return a * (1 - s.sum()) + s

    first = jnp.zeros(len(pulls), g.dtype).at[-1].set(1)
    a = lax.fori_loop(0, steps, pulled, first)
    return [r + mixed(x, a) for r, x in zip(middles, y, strict=True)]
