"""Random rounding to a neighbour, unbiased.

    floor(y) + 1 with probability y - floor(y), else floor(y)

The fraction is exact in float32, and a draw is a multiple of 2^-24: the mean is y to
within 2^-24. An integer stays what it is.
"""

import jax
import jax.numpy as jnp

from relaxjax._core._random import uniform


def rounded(y: jax.Array, words: jax.Array) -> jax.Array:
    """Integers, as floats, whose mean is y; one draw for each element."""
    below = jnp.floor(y)
    up = uniform(words, y.size).reshape(y.shape) < y - below
    return below + up.astype(y.dtype)
