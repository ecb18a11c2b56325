"""Columns of a factor that have lost their direction, drawn anew.

A column of Q that is 0, or 1e-6 of the longest, has lost its direction: P's would be 0
as well, and the column that fills up the basis need not meet the matrix ever again.
Such a column is drawn anew for the step to come, alike on all workers.

Only directions of Q count, and a power of two keeps them to the bit. So Q is kept near
1: the next P is M Q, and in the unit of M it would be beyond float32 where |M| is 1e19.

Cost: the norms of the columns, and a draw in steps in which a column is lost.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax._core._cond import when
from relaxjax._core._extremes import largest
from relaxjax._core._random import normals
from relaxjax._core.layouts._sharding import alike
from relaxjax.gradients.low_rank._bases import apart, batched

NULL = 1e-6
"""Of the longest column of Q: what is shorter has lost its direction."""


def with_lost_directions(q: list[jax.Array], key: jax.Array) -> list[jax.Array]:
    """The right factors near 1, with columns that are null drawn anew from the key."""
    if not q:
        return q
    groups = alike([x.shape[1:] for x in q])  # those of a shape are one batch
    batches = list(map(_near_one, batched(q, groups)))
    norms = [jnp.linalg.norm(x, axis=1, keepdims=True) for x in batches]
    longest = [largest(x, 2, keepdims=True) for x in norms]  # each [batch, 1, 1]
    null = [x <= NULL * most for x, most in zip(norms, longest, strict=True)]

    def redraw(batches: list[jax.Array]) -> list[jax.Array]:
        once = jax.random.clone(key)  # `when` has a loop, of one turn at most
        drawn = batched(normals(once, [x.shape for x in q]), groups)
        return list(map(_redrawn, batches, null, longest, drawn))

    any_null = functools.reduce(jnp.logical_or, [x.any() for x in null])
    return apart(when(any_null, redraw, batches), groups, [len(x) for x in q])


def _near_one(x: jax.Array) -> jax.Array:
    """Each matrix over a power of two, so that its largest is from 4 to 8.

    What is not finite stays, and what is so small that 1 / s would not be a float.
    """
    most = largest(x, (1, 2), keepdims=True)
    exponent = lax.bitcast_convert_type(most, jnp.uint32) & np.uint32(0x7F800000)
    s = lax.bitcast_convert_type(exponent, jnp.float32) / 4
    usual = (most >= 8 * np.finfo(np.float32).tiny) & jnp.isfinite(most)
    return x / jnp.where(usual, s, 1)


def _redrawn(q: jax.Array, null: Any, longest: Any, drawn: jax.Array) -> jax.Array:
    """Random columns where they are null, some as long as the longest, or as 1."""
    length = jnp.where(longest > 0, longest, 1) / math.sqrt(q.shape[1])
    return jnp.where(null, length * drawn, q)
