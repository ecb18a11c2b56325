"""Casts: float32 as it is, or 16 or 8 bits of it.

Source: PyTorch's communication hooks for 16 bits; for 8 bits the E4M3 format
(Micikevicius et al. 2022), scaled as in torchft, here by blocks. Casts round to
nearest, |C(x) - x| <= u |x|, and clamp finite values to the largest finite one;
infinities and NaN stay. With unit roundoff u:

    bfloat16:       u = 2^-8 for all of float32:  B(1 - 2^-16)
    float16:        u = 2^-11 from 2^-14 to 65504; 0 is nearer to x than x is to what
                    lies outside, and |C(x) - x| <= |x|:  B(0)
    float8_e4m3fn:  of 448 x / M with M the largest |x| of a block; M itself is exact

In float8 a block's other n = B - 1 elements lose at most u / (1 + u) = 1/17, and below
2^-6 at most 2^-10. The loss is worst where all of them lie in the middle between two
codes, at 272 in the highest binade or at 2^-10:

    1 - delta = max(n / (784 + 289 n), n / (448^2 2^20 + n))

Bits travel as integers, behind a barrier: XLA for GPU removes a cast there and back,
and error feedback would see no loss.

Cost: 4 d; 2 d; d bytes and 4 for each block.
"""

from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax.compression._blocks import BlockPayload, Blocks, checked_blocks, flat_of
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._scaling import over_largest

_MAX = 448.0  # the largest float8_e4m3fn


def identity() -> Compressor:
    """Float32 as it is: nothing is lost.

    Returns:
      A deterministic, exact, linear compressor.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> print(compression.roundtrip(compression.identity(), jnp.array([0.1, -3.0])))
      [ 0.1 -3. ]
    """
    law = Law(omega=lambda d: 0.0, delta=lambda d: 1.0, linear=True)
    return Compressor(
        "identity",
        lambda x, noise: x,
        lambda payload, size, noise: payload,
        law,
        algorithm="psum",
    )


def cast(dtype: Any, *, block_size: int | None = 128) -> Compressor:
    """Fewer bits for each float.

    Args:
      dtype: bfloat16, float16 or float8_e4m3fn.
      block_size: for float8 alone, number of elements that share a scale; None: all.

    Returns:
      A deterministic compressor, biased.

    Raises:
      ValueError: `dtype` is another one, or `block_size` is not positive.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([1.0, 1.001, 257.0])
      >>> print(compression.roundtrip(compression.cast(jnp.bfloat16), x))
      [  1.   1. 256.]
    """
    with suppress(TypeError):  # a name that NumPy does not know is refused below
        dtype = jnp.dtype(dtype)
    blocks = checked_blocks(block_size, "cast")
    if dtype == jnp.float8_e4m3fn:
        return _scaled(blocks)
    if dtype == jnp.bfloat16:
        return _plain(dtype, Law(delta=lambda d: 1 - 2.0**-16))
    if dtype == jnp.float16:
        return _plain(dtype, Law(delta=lambda d: 0.0))
    raise ValueError(
        f"cast: dtype={dtype} must be bfloat16, float16 or float8_e4m3fn; for "
        "integer codes use quantize"
    )


def _plain(target: jnp.dtype, law: Law) -> Compressor:
    limit = float(jnp.finfo(target).max)

    def compress(x, noise):
        finite = jnp.where(jnp.isinf(x), x, jnp.clip(x, -limit, limit))
        return _bits(finite.astype(target), jnp.uint16)

    def decompress(payload, size, noise):
        return jax.lax.bitcast_convert_type(payload, target).astype(jnp.float32)

    return Compressor(f"cast_{target.name}", compress, decompress, law)


def _scaled(blocks: Blocks) -> Compressor:
    def compress(x, noise):
        y, most = over_largest(blocks.of(x))
        scaled = flat_of((y * _MAX).astype(jnp.float8_e4m3fn), x.size)
        return BlockPayload(_bits(scaled, jnp.uint8), most[:, 0])

    def decompress(payload, size, noise):
        values = jax.lax.bitcast_convert_type(payload.codes, jnp.float8_e4m3fn)
        # The constant after the padding: XLA then folds it into the scale.
        units = blocks.of(values.astype(jnp.float32)) * (1 / _MAX)
        return flat_of(units * payload.scale[:, None], size)

    def delta(d: int) -> float:
        n = blocks.width(d) - 1
        return 1 - max(n / (784 + 289 * n), n / (_MAX**2 * 2**20 + n))

    return Compressor("cast_float8_e4m3fn", compress, decompress, Law(delta=delta))


def _bits(values: jax.Array, as_integer: Any) -> jax.Array:
    bits = jax.lax.bitcast_convert_type(values, as_integer)
    return jax.lax.optimization_barrier(bits)
