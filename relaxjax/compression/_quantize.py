"""Integer codes: 8, 4 or 2 bits, symmetric, with one scale per block.

Source: block-wise absolute-maximum quantization, as in 8-bit optimizers (Dettmers et
al. 2022). With M the largest |x| of a block, L = 127, 7 or 1 and s = 1 / L:

    q = round(x L / M),  C(x) = q M / L

Nearest rounding: M is exact, and the other n = B - 1 elements lose at most
min(|x|, s M / 2), so that, with t = n s^2 / 4 and equality where all lie at s M / 2,

    |C(x) - x|^2 <= t M^2 <= t / (1 + t) |x|^2,   delta = 1 / (1 + t)

Stochastic rounding gives floor(y) + 1 with probability y - floor(y), else floor(y). The
fraction is exact in float32, and a draw is a multiple of 2^-24: the mean is y to within
2^-24, and an integer stays what it is. So it is unbiased. An element a in [0, s M] has
variance a (s M - a); the ratio of the sums is largest where all n lie at one such a:

    omega = (sqrt(1 + n s^2) - 1) / 2

Blocks of 128 are the smallest power of two with which 4 bits and the scale are at most
1/7.5 of float32 (at least 120 elements are needed): 1/7.53.

Cost: bits d / 8 bytes and 4 for each block.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._random import uniform
from relaxjax.compression._bits import check_bits, pack, unpack
from relaxjax.compression._blocks import BlockPayload, checked_blocks, flat_of
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._scaling import over_largest


def quantize(
    bits: int, *, block_size: int | None = 128, stochastic_rounding: bool = False
) -> Compressor:
    """Integers of a few bits times the largest magnitude of the block.

    Args:
      bits: 8, 4 or 2.
      block_size: number of elements that share a scale; None: all.
      stochastic_rounding: whether to round at random, so that the mean is exact, or to
        nearest.

    Returns:
      A compressor, unbiased and random, or biased and deterministic.

    Raises:
      ValueError: `bits` is another number, or `block_size` is not positive.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([7.0, -2.2, 0.4])
      >>> print(compression.roundtrip(compression.quantize(4), x))
      [ 7. -2.  0.]
    """
    check_bits(bits, "quantize")
    blocks = checked_blocks(block_size, "quantize")
    levels = 2 ** (bits - 1) - 1
    step = np.float32(1 / levels)

    def compress(x, noise):
        y, most = over_largest(blocks.of(x))
        y = y * levels
        q = round_at_random(y, noise.own) if stochastic_rounding else jnp.rint(y)
        codes = flat_of(q + levels, x.size).astype(jnp.uint8)
        return BlockPayload(pack(codes, bits), most[:, 0])

    def decompress(payload, size, noise):
        q = unpack(payload.codes, bits, size).astype(jnp.float32) - levels
        return blocks.rescaled(q * step, payload.scale)

    def others(d: int) -> int:
        return blocks.width(d) - 1

    if stochastic_rounding:
        law = Law(omega=lambda d: (math.sqrt(1 + others(d) / levels**2) - 1) / 2)
    else:
        law = Law(delta=lambda d: 1 / (1 + others(d) / levels**2 / 4))
    name = f"quantize{bits}" + "_stochastic" * stochastic_rounding
    return Compressor(name, compress, decompress, law, random=stochastic_rounding)


def round_at_random(y: jax.Array, words: jax.Array) -> jax.Array:
    """Integers, as floats, whose mean is y; one draw for each element."""
    below = jnp.floor(y)
    up = uniform(words, y.size).reshape(y.shape) < y - below
    return below + up.astype(y.dtype)
