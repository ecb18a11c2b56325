"""Top-k: of each block, the elements of largest magnitude and where they lie.

Source: the k-contraction of Stich et al. 2018, in blocks as in DeMo and SparseLoCo
(Peng et al. 2024, Sarfi et al. 2025). Of each block of b elements the k largest are
kept, and of equal ones those that come first:

    C(x)_i = x_i if i is among the k, else 0,    k = ceil(density b)
    |C(x) - x|^2 <= (1 - k / b) |x|^2, equal for a constant x and b that divides d

That holds of all blocks together since it holds of each. The last block is filled up
with zeros, which are never chosen before an element; if they are chosen, they lie
beyond the end and are cut off.

Cost: 4 k + k log2(b) / 8 bytes for each block, 12 bits an index in blocks of 4096.
Many small selections cost a fraction of one over all elements.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from relaxjax.compression._bits import pack, unpack, width_below
from relaxjax.compression._blocks import (
    block_width,
    blocks_of,
    check_block_size,
    flat_of,
)
from relaxjax.compression._density import check_density, count_of
from relaxjax.compression._protocol import Compressor, Law


class TopKPayload(NamedTuple):
    """Attributes: values: float32[blocks, k]; indices: uint8[], packed."""

    values: jax.Array
    indices: jax.Array


def top_k(density: float, *, block_size: int | None = 4096) -> Compressor:
    """The largest elements of each block. A NaN counts as the largest of all.

    Args:
      density: share of each block that is sent, in (0, 1]; rounded up to a whole
        number of elements, at least one.
      block_size: elements of a block; None means all, which is exact top-k and slower.
        An array of fewer elements is one block.

    Returns:
      A deterministic compressor, biased: use error feedback.

    Raises:
      ValueError: `density` is not in (0, 1]; `block_size` is not positive.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([1.0, -5.0, 2.0, 0.0])
      >>> print(compression.roundtrip(compression.top_k(0.5), x))
      [ 0. -5.  2.  0.]
    """
    check_density(density, "top_k")
    check_block_size(block_size, "top_k")

    def compress(x, noise):
        del noise
        blocks = blocks_of(x, block_size)
        width = blocks.shape[-1]
        # Of floats: the same selection of integer keys is 30 times slower on CPU.
        _, indices = jax.lax.top_k(jnp.abs(blocks), max(1, count_of(density, width)))
        values = jnp.take_along_axis(blocks, indices, axis=-1)
        return TopKPayload(values, pack(indices.ravel(), width_below(width)))

    def decompress(payload, size, noise):
        del noise
        rows, k = payload.values.shape
        width = block_width(size, block_size)
        indices = unpack(payload.indices, width_below(width), rows * k).reshape(rows, k)
        blocks = jnp.zeros((rows, width), payload.values.dtype)
        row = jnp.arange(rows)[:, None]
        blocks = blocks.at[row, indices].set(payload.values, unique_indices=True)
        return flat_of(blocks, size)

    def delta(d):
        width = block_width(d, block_size)
        return count_of(density, width) / width

    return Compressor(
        "top_k", compress, decompress, Law(delta=delta), algorithm="one_shot"
    )
