"""Quotients by a scale, and norms, for any float32 that is finite."""

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._extremes import largest


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
    """The quotient x / M, and M, the largest magnitude over the last axis.

    An integer code has no room for what is not finite. M is NaN if any element is NaN
    or infinite, and so is all that is decoded with it: no receiver sees a finite
    number, nor an infinity of the wrong sign.

    Args:
      x: float32[..., d].

    Returns:
      float32[..., d], from -1 to 1, and float32[..., 1]. Both are 0 where x is.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> unit, scale = compression.over_largest(jnp.array([1.0, -4.0]))
      >>> print(unit, scale)
      [ 0.25 -1.  ] [4.]
    """
    most = largest(x, -1, keepdims=True)
    most = jnp.where(jnp.isfinite(most), most, jnp.nan)
    return over(x, most), most


def saturated(y: jax.Array, x: jax.Array) -> jax.Array:
    """What is out of range in y becomes the largest float where x is finite."""
    top = np.finfo(np.float32).max
    return jnp.where(jnp.isfinite(x), jnp.clip(y, -top, top), y)
