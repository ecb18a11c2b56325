"""The geometric median, by Weiszfeld's iterations: the point nearest to all workers.

Source: RFA (Pillutla et al. 2019, krishnap25/RFA). From the mean z of the m present,
T times, with a smoothing nu relative to a usual distance s (theirs is absolute):

    b_k = 1 / max(nu s, |x_k - z|),   z <- sum_k b_k x_k / sum_k b_k

Each present worker counts once (theirs: by its examples, of which half may lie). Law:
equivariant to scale, shift and rotation; it stands (m - 1) // 2 workers, in the limit.
From the mean, f workers at a distance R leave R (f / (m - f))^T: iterations are free.

Cost: one Gram matrix (`relaxjax.merges._gram`); m floats an iteration, and no message.
"""

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax.merges._gram import Shards, Total, centered, gram, mixed, spread_of
from relaxjax.merges._gram import to_mixture as squares_to
from relaxjax.merges._presence import over
from relaxjax.merges._rule import Rule, require_number, require_steps

_TINY = float(jnp.finfo(jnp.float32).tiny)  # a square


def geometric_median(steps: int = 32, *, nu: float = 1e-6) -> Rule:
    """The point whose distances to all who are present have the least sum.

    It stands any (m - 1) // 2 of m workers, and ignores weights. Distances are of all
    leaves together.

    Args:
      steps: iterations, 1 to 1000; from the mean, each leaves f / (m - f) of what f
        wrong ones have done.
      nu: distances below `nu` times a usual one count as that, above 0.

    Returns:
      A rule for `merge=` and `op=`, of real leaves, with dense codes or none.

    Raises:
      ValueError: steps outside of 1 to 1000, a `nu` that is not above 0.

    Example:
      >>> import numpy as np
      >>> from relaxjax import merges
      >>> x = np.array([[1.0, 0], [2, 1], [1, 2], [2, 1], [100, -100]])
      >>> found = merges.merged(merges.geometric_median(3), x)
      >>> print(np.asarray(found).round(2))
      [1.96 0.51]
    """
    require_number("geometric_median", "nu", nu, "a finite number above 0", 0)
    steps = require_steps("geometric_median", steps)
    return Rule("geometric_median", (("steps", steps), ("nu", float(nu))))


def geometric_median_of(
    shards: Shards, here: jax.Array, total: Total, *, steps: int, nu: float
) -> list[jax.Array]:
    """The point, shard by shard of rows."""
    middles, y = centered(shards, here)
    g = gram(y, total)
    least = jnp.maximum(nu**2 * spread_of(g, here), _TINY)

    def closer(_: int, a: jax.Array) -> jax.Array:
        b = jnp.where(here, lax.rsqrt(jnp.maximum(squares_to(g, a), least)), 0)
        return over(b, b.sum())

    first = here.astype(g.dtype) / jnp.maximum(here.sum(), 1).astype(g.dtype)
    a = lax.fori_loop(0, steps, closer, first)
    return [r + mixed(x, a) for r, x in zip(middles, y, strict=True)]
