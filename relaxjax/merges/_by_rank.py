"""Coordinate by coordinate: the median, and the mean without the b least and largest.

Source: Yin et al. 2018. Of the m present, sorted x_(0) <= .. <= x_(m-1):

    median      (x_((m-1)//2) + x_(m//2)) / 2, as numpy has it
    trimmed(b)  mean of x_(b) .. x_(m-b-1);  b <- min(b, (m - 1) // 2)

Each present worker counts once, whatever it weighs. Law: exact in any order of workers
(the median), equivariant to scale and shift; f wrong workers stay within the range of
the others, f <= (m - 1) // 2, or b. Computed in float32, rounded once.

Cost: a sort of n rows (`relaxjax.merges._sorted`).
"""

from functools import reduce

import jax
import jax.numpy as jnp

from relaxjax._core._checks import require_whole
from relaxjax.merges._rule import Rule
from relaxjax.merges._sorted import sorted_rows


def median() -> Rule:
    """The median of each coordinate over those who are present.

    It stands any (m - 1) // 2 of m workers, whatever they send, and ignores weights. It
    costs accuracy where honest workers differ, and stalls on sparse codes.

    Returns:
      A rule for `merge=` and `op=`, of real leaves, with dense codes or none.

    Example:
      >>> import numpy as np
      >>> from relaxjax import merges
      >>> x = np.array([[1.0, 0], [2, 1], [1, 2], [2, 1], [100, -100]])
      >>> print(merges.merged(merges.median(), x))
      [2. 1.]
    """
    return Rule("median")


def trimmed(b: int) -> Rule:
    """The mean of each coordinate without its b least and b largest values.

    It stands any b workers, whatever they send, and ignores weights.

    Args:
      b: values to leave out at either end, 0 or more. Of m present workers at most
        (m - 1) // 2 are left out, which is the median for odd m.

    Returns:
      A rule for `merge=` and `op=`, of real leaves, with dense codes or none.

    Raises:
      ValueError: b is not a whole number of 0 or more.

    Example:
      >>> import numpy as np
      >>> from relaxjax import merges
      >>> x = np.array([[1.0, 0], [2, 1], [1, 2], [2, 1], [100, -100]])
      >>> print(merges.merged(merges.trimmed(1), x).round(4))
      [1.6667 0.6667]
    """
    require_whole("trimmed", "b", b, 0)
    return Rule("trimmed", (("b", int(b)),))


def trimmed_mean_of(x: jax.Array, here: jax.Array, *, b: int) -> jax.Array:
    """Likewise."""
    rows, m = sorted_rows(x, here), here.sum()
    few = jnp.minimum(b, jnp.maximum(m - 1, 0) // 2)
    kept = [jnp.where((few <= k) & (k < m - few), row, 0) for k, row in enumerate(rows)]
    total = reduce(jnp.add, kept)
    return total / jnp.maximum(m - 2 * few, 1).astype(total.dtype)
