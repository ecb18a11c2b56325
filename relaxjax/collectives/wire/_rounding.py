"""Sums of narrow floats, rounded once.

They are computed in float32 or wider, in a fixed order.
"""

from functools import reduce

import jax
import jax.numpy as jnp

from relaxjax._core._tree import is_narrow


def add_rounding_once(x: jax.Array, y: jax.Array) -> jax.Array:
    """`x + y` in float32 or wider, rounded once to the dtype of `x`."""
    if is_narrow(x.dtype):
        return (x.astype(jnp.float32) + y.astype(jnp.float32)).astype(x.dtype)
    return x + y


def sum_rounding_once(blocks: jax.Array) -> jax.Array:
    """The sum of `blocks` over the first axis, in float32 or wider, rounded once.

    The order is fixed, from first to last: equal blocks give equal bits everywhere.
    """
    return wide_sum(blocks).astype(blocks.dtype)


def wide_sum(blocks: jax.Array) -> jax.Array:
    """The sum of `blocks` over the first axis, in float32 or wider."""
    narrow = is_narrow(blocks.dtype)
    first, *others = blocks.astype(jnp.float32) if narrow else blocks
    return reduce(jnp.add, others, first)
