"""In cosines: a compressor after the discrete cosine transform of blocks.

Source: the transform of DeMo (Peng et al. 2024), here around any code. With H the
orthonormal DCT-II of blocks of B elements, the last filled with zeros:

    C'(x) = M H^T C(H x / M),  M = max |x|
    H_ab = sqrt(2 / B) cos(pi a (2 b + 1) / (2 B)),  H_0b = sqrt(1 / B)

Where neighbors are alike, few coefficients hold most of x, and a choice of the largest
loses less; on noise it is like any other rotation (`relaxjax.compression.rotated`).

Cost: C's payload, of d filled up to whole blocks, and 4 bytes; B multiplications for
each element, there and back.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._checks import require_whole
from relaxjax.compression._protocol import Compressor
from relaxjax.compression._rotated import Turn, turned


def in_cosines(compressor: Compressor, *, block_size: int = 64) -> Compressor:
    """A compressor of the cosine coefficients of blocks; deterministic.

    Experimental: this may change in any release.

    Args:
      compressor: a compressor without feedback; put feedback around the result.
      block_size: number of elements that are transformed together, 1 or more.

    Returns:
      A compressor with the law of the one given, except that it is not linear.

    Raises:
      TypeError: `compressor` is not a `Compressor`.
      ValueError: `compressor` has feedback, or `block_size` is below 1.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.cos(jnp.arange(64.0) / 20)  # smooth: few frequencies
      >>> few = compression.top_k(0.1)
      >>> def lost(code):
      ...     error = x - compression.roundtrip(code, x)
      ...     return round(float(jnp.linalg.norm(error) / jnp.linalg.norm(x)), 2)
      >>> lost(few), lost(compression.in_cosines(few))
      (0.89, 0.0)
    """
    require_whole("in_cosines", "block_size", block_size)

    def there(x: jax.Array) -> jax.Array:
        return _product(x, cosine_transform(block_size).T)

    def back(x: jax.Array) -> jax.Array:
        return _product(x, cosine_transform(block_size))

    return turned(compressor, Turn("in_cosines", block_size, there, back))


def cosine_transform(n: int) -> jax.Array:
    """H, float32[n, n]: row a holds the cosine of frequency a."""
    a, b = np.ogrid[:n, :n]
    waves = math.sqrt(2 / n) * np.cos(np.pi * a * (2 * b + 1) / (2 * n))
    return jnp.asarray(np.where(a == 0, math.sqrt(1 / n), waves), jnp.float32)


def _product(x: jax.Array, h: jax.Array) -> jax.Array:
    return jnp.matmul(x, h, precision=jax.lax.Precision.HIGHEST)
