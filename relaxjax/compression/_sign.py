"""Mean-scaled sign: one bit per element and one scale per block.

Source: Karimireddy et al. 2019 (EF-signSGD), with the mean as the scale, which makes it
a contraction (with the root mean square it is not one):

    C(x) = (|x|_1 / d) sign(x),  sign(0) = +1 (what the bit says)
    |C(x) - x|^2 = (1 - delta) |x|^2 with delta = |x|_1^2 / (d |x|_2^2) >= 1 / d

Cost: d / 8 bytes and 4 for each block.
"""

import jax.numpy as jnp

from relaxjax.compression._bits import pack, unpack
from relaxjax.compression._blocks import BlockPayload, checked_blocks
from relaxjax.compression._protocol import Compressor, Law


def sign(*, block_size: int | None = None) -> Compressor:
    """The sign of each element, times the mean magnitude of its block.

    Args:
      block_size: number of elements that share a scale, a multiple of 8; None: all.

    Returns:
      A deterministic compressor, biased: use error feedback.

    Raises:
      ValueError: `block_size` is not a positive multiple of 8.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> print(compression.roundtrip(compression.sign(), jnp.array([1.0, 0.0, -5.0])))
      [ 2.  2. -2.]
    """
    blocks = checked_blocks(block_size, "sign", multiple=8)

    def compress(x, noise):
        counts = jnp.asarray(blocks.counts(x.size), jnp.float32)
        magnitudes = jnp.abs(blocks.of(x)) / counts[:, None]
        positive = pack((x >= 0).astype(jnp.uint8), 1)
        return BlockPayload(positive, jnp.sum(magnitudes, axis=-1))

    def decompress(payload, size, noise):
        signs = unpack(payload.codes, 1, size).astype(jnp.float32) * 2 - 1
        return blocks.rescaled(signs, payload.scale)

    law = Law(delta=lambda d: 1 / blocks.width(d))
    return Compressor("sign", compress, decompress, law)
