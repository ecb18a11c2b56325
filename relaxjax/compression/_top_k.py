"""Top-k: of each block, the elements of largest magnitude and where they lie.

Source: the k-contraction of Stich et al. 2018, in blocks as in DeMo and SparseLoCo
(Peng et al. 2024, Sarfi et al. 2025). Of each block of b elements the k largest are
kept, and of equal ones those that come first:

    C(x)_i = Q(x_i) if i is among the k, else 0,    k = ceil(density b)
    |C(x) - x|^2 <= (1 - delta_Q k / b) |x|^2

with Q the code of the kept values, of all blocks in a row. As they are (delta_Q = 1)
the law is attained, for a constant x and b that divides d. It holds of all blocks
together since it holds of each. The last block is filled up with zeros, which are never
chosen before an element; if they are chosen, they lie beyond the end and are cut off.

Cost: 4 k + k log2(b) / 8 bytes for each block, 12 bits an index in blocks of 4096; a
code of 2 bits makes 4 k to k / 4, and its scales. Many small selections cost a fraction
of one over all elements.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax.compression._bits import pack, unpack, width_below
from relaxjax.compression._blocks import (
    block_width,
    blocks_of,
    check_block_size,
    flat_of,
)
from relaxjax.compression._cast import identity
from relaxjax.compression._density import check_density, count_of
from relaxjax.compression._protocol import (
    NO_FEEDBACK,
    Compressor,
    Law,
    contractive,
)


class TopKPayload(NamedTuple):
    """Attributes: values: of [blocks k] of them; indices: uint8[], packed."""

    values: Any
    indices: jax.Array


def top_k(
    density: float,
    *,
    block_size: int | None = 4096,
    values: Compressor | None = None,
) -> Compressor:
    """The largest elements of each block. A NaN counts as the largest of all.

    Args:
      density: share of each block that is sent, in (0, 1]; rounded up to a whole
        number of elements, at least one.
      block_size: elements of a block; None means all, which is exact top-k and slower.
        An array of fewer elements is one block.
      values: a compressor of what is kept, without feedback, such as `quantize(2,
        block_size=64)`; an unbiased one is divided by 1 + omega. None: as it is.

    Returns:
      A compressor, biased: use error feedback. Random if that of the values is.

    Raises:
      ValueError: `density` is not in (0, 1]; `block_size` is not positive; `values` has
        feedback, or is neither a contraction nor unbiased.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([1.0, -5.0, 2.0, 0.0])
      >>> print(compression.roundtrip(compression.top_k(0.5), x))
      [ 0. -5.  2.  0.]
    """
    check_density(density, "top_k")
    check_block_size(block_size, "top_k")
    code = _code_of(values)
    shrinks = code.law.delta
    assert shrinks is not None  # a contraction

    def kept(d: int) -> tuple[int, int]:
        """Blocks of d elements, and how many of each are kept."""
        width = block_width(d, block_size)
        return -(-d // width), max(1, count_of(density, width))

    def compress(x, noise):
        blocks = blocks_of(x, block_size)
        width = blocks.shape[-1]
        # Of floats: the same selection of integer keys is 30 times slower on CPU.
        _, indices = jax.lax.top_k(jnp.abs(blocks), kept(x.size)[1])
        found = jnp.take_along_axis(blocks, indices, axis=-1)
        packed = pack(indices.ravel(), width_below(width))
        return TopKPayload(code.compress(found.ravel(), noise), packed)

    def decompress(payload, size, noise):
        rows, k = kept(size)
        width = block_width(size, block_size)
        found = code.decompress(payload.values, rows * k, noise).reshape(rows, k)
        indices = unpack(payload.indices, width_below(width), rows * k).reshape(rows, k)
        row = jnp.arange(rows)[:, None]
        blocks = jnp.zeros((rows, width), found.dtype)
        return flat_of(blocks.at[row, indices].set(found, unique_indices=True), size)

    def delta(d):
        rows, k = kept(d)
        return shrinks(rows * k) * k / block_width(d, block_size)

    name = "top_k" if values is None else f"top_k of {values.name}"
    law = Law(delta=delta)
    return Compressor(
        name, compress, decompress, law, random=code.random, algorithm="one_shot"
    )


def _code_of(values: Compressor | None) -> Compressor:
    """How kept values travel: a contraction."""
    if values is None:
        return identity()
    if values.feedback is not NO_FEEDBACK:
        raise ValueError(
            f"top_k: values={values.name} with {values.feedback.name}: what is lost of "
            "a value must come back at its place; give the bare compressor, and wrap "
            "top_k"
        )
    return contractive(values)
