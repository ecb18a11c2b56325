"""Coordinate by coordinate: the median, and the mean without the b least and largest.

Source: Yin et al. 2018. Of the m present, sorted x_(0) <= .. <= x_(m-1):

    median      (x_((m-1)//2) + x_(m//2)) / 2, as numpy has it
    trimmed(b)  mean of x_(b) .. x_(m-b-1);  b <- min(b, (m - 1) // 2)

Each present worker counts once, whatever it weighs. Law: exact in any order of workers
(the median), equivariant to scale and shift; f wrong workers stay within the range of
the others, f <= (m - 1) // 2, or b. Computed in float32, rounded once.

The sort is Batcher's network of minima and maxima of whole rows (Knuth 5.2.2 M), which
runs at the speed of memory; rows hold no NaN (`relaxjax.merges._presence`).

Cost: some n (log2 n)^2 / 4 comparisons of rows, 19 for 8 and 63 for 16 workers.
"""

from functools import reduce

import jax
import jax.numpy as jnp

from relaxjax._core._checks import require_whole
from relaxjax.merges._rule import Rule


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


def median_of(x: jax.Array, here: jax.Array) -> jax.Array:
    """Over the first axis of finite rows, of those who are here; 0 without any."""
    rows, m = sorted_rows(x, here), here.sum()
    low, high = (_at(rows, place) for place in (jnp.maximum(m - 1, 0) // 2, m // 2))
    return jnp.where(m > 0, 0.5 * low + 0.5 * high, 0)


def trimmed_mean_of(x: jax.Array, here: jax.Array, *, b: int) -> jax.Array:
    """Likewise."""
    rows, m = sorted_rows(x, here), here.sum()
    few = jnp.minimum(b, jnp.maximum(m - 1, 0) // 2)
    kept = [jnp.where((few <= k) & (k < m - few), row, 0) for k, row in enumerate(rows)]
    return reduce(jnp.add, kept) / jnp.maximum(m - 2 * few, 1)


def sorted_rows(x: jax.Array, here: jax.Array) -> list[jax.Array]:
    """Rows in ascending order at each coordinate; inf, at the end, for the absent."""
    rows = [jnp.where(h, row, jnp.inf) for h, row in zip(here, x, strict=True)]
    for i, j in comparisons(len(rows)):
        low = jnp.minimum(rows[i], rows[j])
        rows[i], rows[j] = low, jnp.maximum(rows[i], rows[j])
    return rows


def comparisons(n: int) -> list[tuple[int, int]]:
    """Pairs (i, j), i < j, whose exchanges in order sort any n values."""
    pairs = []
    p = top = 1 << max(n - 1, 1).bit_length() - 1
    while p:
        q, r, d = top, 0, p
        while True:
            pairs += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return pairs


def _at(rows: list[jax.Array], place: jax.Array) -> jax.Array:
    """The row at a traced place."""
    return reduce(
        lambda kept, k: jnp.where(place == k, rows[k], kept),
        range(1, len(rows)),
        rows[0],
    )
