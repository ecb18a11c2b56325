"""Rows in ascending order at each coordinate, and their middle.

A sort by Batcher's network of minima and maxima of whole rows (Knuth 5.2.2 M), which
runs at the speed of memory: a hundred times that of `jnp.sort` along the first axis, on
CPU. Rows of absent workers go to the end, as infinity. Rows hold no NaN.

Cost: some n (log2 n)^2 / 4 comparisons of rows, 19 for 8 and 63 for 16 workers.
"""

from functools import reduce

import jax
import jax.numpy as jnp


def median_of(x: jax.Array, here: jax.Array) -> jax.Array:
    """Over the first axis of finite rows, of those who are here; 0 without any."""
    rows, m = sorted_rows(x, here), here.sum()
    low, high = (_at(rows, place) for place in (jnp.maximum(m - 1, 0) // 2, m // 2))
    return jnp.where(m > 0, 0.5 * low + 0.5 * high, 0)


def lower_median(x: jax.Array, here: jax.Array) -> jax.Array:
    """The lower median over the first axis, of those who are here; 0 without any."""
    mask = here.reshape(-1, *(1,) * (x.ndim - 1))
    middle = jnp.maximum(here.sum() - 1, 0) // 2
    median = jnp.sort(jnp.where(mask, x, jnp.inf), axis=0)[middle]
    return jnp.where(here.any(), median, 0)


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
