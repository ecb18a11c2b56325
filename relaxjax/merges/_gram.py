"""All distances between n vectors from one n x n matrix, and what is mixed by weights.

With r a common reference and y_k = x_k - r:

    G_ij = y_i . y_j                    |x_i - x_j|^2 = G_ii + G_jj - 2 G_ij
    z = r + sum_k a_k y_k               |x_k - z|^2 = G_kk - 2 (G a)_k + a' G a

so that rules by distance become n weights, which everybody computes alike from G, and
their iterations send nothing. G is a sum over coordinates: of shards, one all-reduce.

The reference is the median of each coordinate. Two vectors of a thousand entries 100
that differ by 0.1 in one have a distance of 0 by products of float32, and 0.01 about a
reference. A worker as the reference may be the wrong one, far from all others, which
loses the distances of these as well.

Cost: a sort of each coordinate, and n^2 products.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax.merges._sorted import lower_median, median_of

Shards = Sequence[jax.Array]
"""Parts of n vectors, each [n, its elements], in float32 or wider and finite."""
Total = Callable[[Sequence[jax.Array]], jax.Array]
"""The sum of an array of each shard, over all shards of all workers."""


def centered(
    shards: Shards, here: jax.Array
) -> tuple[list[jax.Array], list[jax.Array]]:
    """r, and y, in which the absent are 0, of each shard."""
    middles = [median_of(x, here) for x in shards]
    mask = here[:, None]
    pairs = zip(shards, middles, strict=True)
    return middles, [jnp.where(mask, x - r[None], 0) for x, r in pairs]


def gram(y: Shards, total: Total) -> jax.Array:
    """G of all shards."""
    exact = lax.Precision.HIGHEST  # a GPU would take 10 bits of each number
    return total([jnp.matmul(x, x.T, precision=exact) for x in y])


def pairwise(g: jax.Array) -> jax.Array:
    """[n, n]: squared distances, 0 or more."""
    squares = jnp.diagonal(g)
    return jnp.maximum(squares[:, None] + squares[None] - 2 * g, 0)


def to_mixture(g: jax.Array, a: jax.Array) -> jax.Array:
    """[n]: squared distances to r + sum a y, 0 or more."""
    return jnp.maximum(jnp.diagonal(g) - 2 * (g @ a) + a @ g @ a, 0)


def mixed(y: jax.Array, a: jax.Array) -> jax.Array:
    """The sum of a_k y_k over the first axis, in the order of the workers."""
    return reduce(jnp.add, [a[k] * row for k, row in enumerate(y)])


def spread_of(g: jax.Array, here: jax.Array) -> jax.Array:
    """A squared distance that is usual: the median of each worker's median distance."""
    each = lower_median(pairwise(g).T, here)
    return lower_median(each, here)
