"""MinMaxUInt8: eight bits between the least and the largest value of a block.

Source: MinMaxUInt8 of BAGUA's ByteGrad. With the range [lo, hi] of a block and
M = max(|lo|, |hi|):

    sc = 255 / (hi - lo + eps),  ub = round(hi sc),  lb = ub - 255
    q = clip(round(x sc) - lb, 0, 255),  C(x) = (q + lb) / sc

Here eps = 1e-7 M is relative, where BAGUA's is absolute: constant blocks come back at
any scale. Codes are clamped on both sides, where BAGUA's wrap once |x| is some 1e5
times the range. The grid holds 0, so that

    |C(x) - x| <= min(|x|, (hi - lo) / 510) + r M

with r = 2^-20 for the roundings of float32: a range below some 1e-4 M, at a large
offset, is resolved no better than that. As |x|^2 >= lo^2 + hi^2 >= (hi - lo)^2 / 2,

    sqrt(1 - delta) = sqrt(B / (2 255^2 + B - 2)) + r sqrt(B)

Cost: d bytes and 8 for each block.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._extremes import extremes
from relaxjax.compression._blocks import checked_blocks, flat_of
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._scaling import over, saturated


class MinMaxUint8Payload(NamedTuple):
    """Attributes: codes: uint8[d]; low, high: float32[blocks]."""

    codes: jax.Array
    low: jax.Array
    high: jax.Array


def min_max_uint8(*, block_size: int | None = None) -> Compressor:
    """256 evenly spaced values between a block's least and largest.

    Args:
      block_size: number of elements that share a range; None: all.

    Returns:
      A deterministic compressor, biased.

    Raises:
      ValueError: `block_size` is not positive.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([-1.0, 0.0, 0.5, 2.0])
      >>> codes = compression.min_max_uint8().compress(x, None).codes
      >>> print(codes)
      [  0  85 127 255]
    """
    cut = checked_blocks(block_size, "min_max_uint8")

    def compress(x, noise):
        blocks = cut.of(x, edge=True)
        low, high = extremes(blocks, -1, keepdims=True)
        most, scale, lowest = _grid(low, high)
        q = jnp.rint(over(blocks, most) * scale) - lowest
        codes = jnp.clip(q, 0, 255).astype(jnp.int32).astype(jnp.uint8)
        return MinMaxUint8Payload(flat_of(codes, x.size), low[:, 0], high[:, 0])

    def decompress(payload, size, noise):
        most, scale, lowest = _grid(payload.low[:, None], payload.high[:, None])
        q = cut.of(payload.codes).astype(jnp.float32)
        return flat_of(saturated((q + lowest) / scale * most, most), size)

    def delta(d: int) -> float:
        b = cut.width(d)
        lost = math.sqrt(b / (2 * 255**2 + b - 2)) + 2.0**-20 * math.sqrt(b)
        return max(0.0, 1 - lost**2)

    return Compressor("min_max_uint8", compress, decompress, Law(delta=delta))


def _grid(low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The largest magnitude, codes per unit of it, and the lowest code."""
    most = jnp.maximum(jnp.abs(low), jnp.abs(high))
    low, high = over(low, most), over(high, most)
    scale = 255 / (high - low + 1e-7)
    return most, scale, jnp.rint(high * scale) - 255
