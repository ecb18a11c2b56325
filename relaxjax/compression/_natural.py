"""Natural compression and dithering: magnitudes become powers of two.

Source: Horvath et al. 2019. A magnitude a with 2^k <= a < 2^(k+1) becomes

    2^(k+1) with probability (a - 2^k) / 2^k, else 2^k

which is unbiased, with omega = 1/8, attained at a = (4/3) 2^k. In float32 the
probability is the mantissa over 2^23: a draw of 23 bits is added to the bit pattern,
and the carry does the rest, exactly. Magnitudes from 2^127 become 2^127, as the next
power is not a float32: there, at the edge of overflow, it is biased.

Dithering rounds |x| / |x|_p of a block of B elements to one of the two levels next to
it, of 0, 2^(1-s), ..., 1/2, 1. It is unbiased, with r = min(p, 2) and

    omega = 1/8 + z min(1, z),  z = B^(1/r) 2^(1-s)

Cost: 9 d / 8 bytes; w d / 8 with w = ceil(log2(2 s + 1)) and 4 for each block.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._random import bits as random_bits
from relaxjax.compression._bits import pack, unpack
from relaxjax.compression._blocks import BlockPayload, checked_blocks, flat_of
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._qsgd import check_levels, times_over_norm

_MANTISSA = 23  # bits
_BIAS = 127  # of the exponent
_SPECIAL = 255  # exponent of infinities and NaN


class NaturalPayload(NamedTuple):
    """Attributes: negative: uint8[ceil(d / 8)]; exponents: uint8[d]."""

    negative: jax.Array
    exponents: jax.Array


def natural() -> Compressor:
    """The sign and a power of two, in 9 bits, unbiased.

    Returns:
      A random compressor, unbiased.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([4.0, 0.0, -0.5])
      >>> print(compression.roundtrip(compression.natural(), x, key=0))
      [ 4.   0.  -0.5]
    """

    def compress(x, noise):
        pattern = jax.lax.bitcast_convert_type(x, jnp.uint32)
        exponents = _carried(pattern, random_bits(noise.own, x.size))
        special = (pattern & 0x7FFFFFFF) >> _MANTISSA == _SPECIAL
        finite = jnp.minimum(exponents, _SPECIAL - 1)
        exponents = jnp.where(special, jnp.uint32(_SPECIAL), finite)
        negative = (pattern >> 31).astype(jnp.uint8)
        return NaturalPayload(pack(negative, 1), exponents.astype(jnp.uint8))

    def decompress(payload, size, noise):
        negative = unpack(payload.negative, 1, size).astype(jnp.uint32)
        pattern = negative << 31 | payload.exponents.astype(jnp.uint32) << _MANTISSA
        return jax.lax.bitcast_convert_type(pattern, jnp.float32)

    law = Law(omega=lambda d: 1 / 8)
    return Compressor("natural", compress, decompress, law, random=True)


def dithering(
    levels: int, *, p: float = 2.0, block_size: int | None = 128
) -> Compressor:
    """A few powers of two times the block's norm, unbiased.

    Args:
      levels: s, without zero and signs: 3 (3 bits), 7 (4 bits).
      p: order of the norm: 1, 2 or math.inf.
      block_size: number of elements that share a norm; None: all.

    Returns:
      A random compressor, unbiased.

    Raises:
      ValueError: `levels` is not between 1 and 120, `p` is another number, or
        `block_size` is not positive.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([0.0, -4.0, 0.0])
      >>> print(compression.roundtrip(compression.dithering(3), x, key=0))
      [ 0. -4.  0.]
    """
    check_levels(levels, "dithering", 120)
    blocks = checked_blocks(block_size, "dithering")
    if p not in (1, 2, math.inf):
        raise ValueError(f"dithering: p={p} must be 1, 2 or math.inf")
    width = (2 * levels).bit_length()

    def compress(x, noise):
        y, norm = times_over_norm(blocks.of(x), 1, p)
        drawn = random_bits(noise.own, y.size).reshape(y.shape)
        level = _level(jnp.abs(y), drawn, levels)
        codes = jnp.where(y < 0, levels - level, levels + level)
        codes = flat_of(codes, x.size).astype(jnp.uint8)
        return BlockPayload(pack(codes, width), norm[:, 0])

    def decompress(payload, size, noise):
        codes = unpack(payload.codes, width, size).astype(jnp.int32) - levels
        power = (jnp.abs(codes) - levels + _BIAS) << _MANTISSA
        value = jax.lax.bitcast_convert_type(power, jnp.float32)
        value = value * jnp.sign(codes).astype(jnp.float32)
        return blocks.rescaled(value, payload.scale)

    def omega(d: int) -> float:
        z = min(d, block_size or d) ** (1 / min(p, 2)) * 2.0 ** (1 - levels)
        return 1 / 8 + z * min(1, z)

    law = Law(omega=omega)
    return Compressor(f"dithering{levels}", compress, decompress, law, random=True)


def _carried(pattern: jax.Array, drawn: jax.Array) -> jax.Array:
    """The exponent of a float32's pattern, one more as often as the mantissa says."""
    return ((pattern & 0x7FFFFFFF) + (drawn >> (32 - _MANTISSA))) >> _MANTISSA


def _level(y: jax.Array, drawn: jax.Array, levels: int) -> jax.Array:
    """The number of the level to which y in [0, 1] is rounded, 0 for zero.

    Below the least level l, y + l is rounded to l or 2 l, and counts as one less.
    """
    least = jnp.float32(2.0 ** (1 - levels))
    low = y < least
    pattern = jax.lax.bitcast_convert_type(jnp.where(low, y + least, y), jnp.uint32)
    power = _carried(pattern, drawn).astype(jnp.int32) - (_BIAS - levels)
    return jnp.minimum(power - low.astype(jnp.int32), levels)
