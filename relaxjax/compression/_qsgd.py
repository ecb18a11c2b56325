"""QSGD: evenly spaced levels of the Euclidean norm, rounded at random.

Source: Alistarh et al. 2017. With |x| the norm of a block of B elements, s levels and
xi the stochastic rounding of s |x_i| / |x|:

    C(x)_i = |x| sign(x_i) xi / s

It is unbiased, and omega = min(B / s^2, sqrt(B) / s). Squares are taken of x divided by
its largest magnitude, so that none overflows. 4 / |x| and s / 4 are normal numbers
whatever the norm, and 4 / |x| is a block's only factor beside constants: XLA on CPU
then keeps the loop whole.

Cost: w d / 8 bytes with w = ceil(log2(2 s + 1)) bits, and 4 for each block. (The
paper's variable-length code has no static shape.)
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._checks import is_whole
from relaxjax._core._extremes import largest
from relaxjax.compression._bits import pack, unpack
from relaxjax.compression._blocks import BlockPayload, checked_blocks, flat_of
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._quantize import round_at_random
from relaxjax.compression._scaling import over, over_largest, saturated


def qsgd(levels: int, *, block_size: int | None = 128) -> Compressor:
    """A few levels of the block's norm, unbiased.

    Args:
      levels: s, without zero and signs: 1 (2 bits), 7 (4 bits), 127 (8 bits).
      block_size: number of elements that share a norm; None: all.

    Returns:
      A random compressor, unbiased.

    Raises:
      ValueError: `levels` is not between 1 and 32767, or `block_size` not positive.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([3.0, 0.0, -4.0])
      >>> print(compression.roundtrip(compression.qsgd(5), x, key=0))
      [ 3.  0. -4.]
    """
    check_levels(levels, "qsgd", 32767)
    blocks = checked_blocks(block_size, "qsgd")
    width = (2 * levels).bit_length()
    step = np.float32(1 / levels)

    def compress(x, noise):
        y, norm = times_over_norm(blocks.of(x), levels)
        xi = jnp.clip(round_at_random(y, noise.own), -levels, levels)
        codes = flat_of(xi + levels, x.size).astype(jnp.uint32)
        return BlockPayload(pack(codes, width), norm[:, 0])

    def decompress(payload, size, noise):
        xi = unpack(payload.codes, width, size).astype(jnp.float32) - levels
        return blocks.rescaled(xi * step, payload.scale)

    def omega(d: int) -> float:
        b = min(d, block_size or d)
        return min(b / levels**2, math.sqrt(b) / levels)

    law = Law(omega=omega)
    return Compressor(f"qsgd{levels}", compress, decompress, law, random=True)


def check_levels(levels: int, caller: str, most: int) -> None:
    """Refuses anything but 1 .. `most`."""
    if not is_whole(levels) or not 1 <= levels <= most:
        raise ValueError(
            f"{caller}: levels={levels!r} must be a whole number between 1 and {most}; "
            "2 levels + 1 codes are what an element may become"
        )


def times_over_norm(
    blocks: jax.Array, factor: float, p: float = 2
) -> tuple[jax.Array, jax.Array]:
    """The blocks times factor / norm, and the norms of order `p`."""
    y, most = over_largest(blocks)
    norm = saturated(_norm(y, p) * most, most)
    return blocks * over(jnp.full_like(norm, 4), norm) * (factor / 4), norm


def _norm(y: jax.Array, p: float) -> jax.Array:
    if p == math.inf:
        return largest(y, -1, keepdims=True)
    return jnp.linalg.norm(y, p, axis=-1, keepdims=True)
