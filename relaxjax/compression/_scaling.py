"""Quotients by a scale, and norms, for any float32 that is finite."""

import jax
import jax.numpy as jnp
import numpy as np


def largest(x: jax.Array) -> jax.Array:
    """The largest |x| over the last axis, which stays; NaN if there is one."""
    return jnp.max(jnp.abs(x), axis=-1, keepdims=True, initial=0.0)


def over(x: jax.Array, scale: jax.Array) -> jax.Array:
    """The quotient x / scale, and x itself where the scale is zero.

    Compilers multiply by 1 / scale, which is 0 above 2^126 and infinite for the least
    floats; so both are first brought near 1, by a power of two, which rounds nothing.
    """
    scale, large = jnp.where(scale == 0, 1.0, scale), 2.0**64
    near_one = jnp.where(
        scale < 1 / large, large, jnp.where(scale > large, 1 / large, 1)
    )
    return x * near_one / (scale * near_one)


def over_largest(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The quotient x / M with M the `largest`, and M."""
    most = largest(x)
    return over(x, most), most


def saturated(norm: jax.Array, most: jax.Array) -> jax.Array:
    """A norm that is out of range becomes the largest float, if no element is."""
    return jnp.where(
        jnp.isfinite(most), jnp.minimum(norm, np.finfo(np.float32).max), norm
    )
