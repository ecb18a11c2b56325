"""TernGrad: -1, 0 or +1 times the largest magnitude, at random.

Source: Wen et al. 2017, without its gradient clipping, which would make it biased. With
M the largest |x| of a block:

    C(x) = M sign(x) b,  b = 1 with probability |x| / M
    E C(x) = x,  E |C(x) - x|^2 = M |x|_1 - |x|_2^2  exactly

Over all blocks of B elements the ratio to |x|_2^2 is largest where all but one are
equal:  omega = (sqrt(B) - 1) / 2.

Five digits to the base three make a byte, 3^5 = 243 of its 256 values.

Cost: d / 5 bytes and 4 for each block.
"""

import math

import jax
import jax.numpy as jnp

from relaxjax._core._pieces import once_on_cpu
from relaxjax.compression._blocks import BlockPayload, checked_blocks, flat_of
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._quantize import round_at_random
from relaxjax.compression._scaling import over_largest

_DIGITS = 5  # in a byte


def tern_grad(*, block_size: int | None = None) -> Compressor:
    """One of three values, unbiased, in 1.6 bits.

    Args:
      block_size: number of elements that share a scale; None: all.

    Returns:
      A random compressor, unbiased.

    Raises:
      ValueError: `block_size` is not positive.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([3.0, 0.0, -3.0])
      >>> print(compression.roundtrip(compression.tern_grad(), x, key=0))
      [ 3.  0. -3.]
    """
    blocks = checked_blocks(block_size, "tern_grad")

    def compress(x, noise):
        y, most = over_largest(blocks.of(x))
        digits = flat_of(round_at_random(y, noise.own) + 1, x.size)
        digits = once_on_cpu(digits.astype(jnp.uint8))  # a fused sum is no vector
        return BlockPayload(_pack(digits), most[:, 0])

    def decompress(payload, size, noise):
        return blocks.rescaled(_unpack(payload.codes, size) - 1, payload.scale)

    def omega(d: int) -> float:
        return (math.sqrt(blocks.width(d)) - 1) / 2

    return Compressor("tern_grad", compress, decompress, Law(omega=omega), random=True)


def _pack(digits: jax.Array) -> jax.Array:
    groups = jnp.pad(digits, (0, -digits.size % _DIGITS)).reshape(-1, _DIGITS)
    return jnp.sum(groups * _places(), axis=-1, dtype=jnp.uint8)


def _unpack(packed: jax.Array, size: int) -> jax.Array:
    # Quotients by multiplication, exact with the half: no integer division per digit.
    value = packed[:, None].astype(jnp.float32) + 0.5
    inverse = 1 / _places().astype(jnp.float32)
    digits = jnp.floor(value * inverse) - 3 * jnp.floor(value * (inverse / 3))
    return digits.ravel()[:size]


def _places() -> jax.Array:
    return jnp.asarray([3**i for i in range(_DIGITS)], jnp.uint8)
