"""Means of narrow floats, of which no step leaves the dtype's range.

A sum in float16 overflows, and the n-th part of a tiny value is 0. So the division
stands between the sum in float32 and its rounding; in a ring each hop passes on

    m <- (k m + x) / (k + 1)          the mean so far, of k workers

Cost: the bytes of the sums.
"""

from functools import partial

import jax
import jax.numpy as jnp

from relaxjax._core._axis import AxisName
from relaxjax.collectives.exact._bidirectional_ring import two_rings
from relaxjax.collectives.exact._hierarchical import two_axes
from relaxjax.collectives.exact._ring import one_ring
from relaxjax.collectives.exact._two_shot import chunk_of_all, gather_chunks
from relaxjax.collectives.wire._messages import for_each_axis, gather, nothing_to_send
from relaxjax.collectives.wire._rounding import wide_sum


def mean_rounding_once(blocks: jax.Array) -> jax.Array:
    """The mean of `blocks` over the first axis, in float32 or wider, rounded once."""
    return (wide_sum(blocks) / len(blocks)).astype(blocks.dtype)


def mean_with_one_more(mean: jax.Array, count: int, x: jax.Array) -> jax.Array:
    """The mean of `count` values and of `x`, in float32, rounded once."""
    total = count * mean.astype(jnp.float32) + x.astype(jnp.float32)
    return (total / (count + 1)).astype(x.dtype)


def scatter_mean(x: jax.Array, name: str) -> jax.Array:
    """Chunk i of the mean, at worker i, rounded once."""
    return mean_rounding_once(chunk_of_all(x, name))


def two_shot_mean(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """The mean of narrow floats, divided before it is rounded; else as the sum."""

    def one_axis(x: jax.Array, name: str) -> jax.Array:
        return gather_chunks(scatter_mean(x, name), name, x)

    return for_each_axis(x, axis_name, "two_shot_mean", one_axis)


def one_shot_mean(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """The mean of narrow floats, divided before it is rounded; else as the sum."""

    def one_axis(x: jax.Array, name: str) -> jax.Array:
        return mean_rounding_once(gather(x, name))

    return for_each_axis(x, axis_name, "one_shot_mean", one_axis)


def hierarchical_mean(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """The mean of narrow floats, divided before it is rounded; else as the sum."""
    outer, inner = two_axes(axis_name, "hierarchical_mean")
    if x.size == 0:
        return nothing_to_send(nothing_to_send(x, inner), outer)
    return gather_chunks(two_shot_mean(scatter_mean(x, inner), outer), inner, x)


def ring_mean(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """The mean of narrow floats, by the mean so far at each hop; else as the sum."""
    return for_each_axis(x, axis_name, "ring_mean", one_ring_of_means)


one_ring_of_means = partial(one_ring, add=mean_with_one_more)


def bidirectional_ring_mean(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """The mean of narrow floats, by the mean so far at each hop; else as the sum."""
    rings = partial(two_rings, ring=one_ring_of_means)
    return for_each_axis(x, axis_name, "bidirectional_ring_mean", rings)
