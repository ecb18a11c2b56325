"""Top-k: of each block, the elements of largest magnitude and where they lie.

Source: the k-contraction of Stich et al. 2018, in blocks as in DeMo and SparseLoCo
(Peng et al. 2024, Sarfi et al. 2025). The k largest of each block of b elements are
sent, and of equal ones those that come first:

    C(x)_i = Q(x_i) if i is among the k, else 0,    k = ceil(density b)
    |C(x) - x|^2 <= (1 - delta_Q k / b) |x|^2

with Q the compressor of the values, of all blocks in a row. Without one (delta_Q = 1)
the law is attained, for a constant x and b that divides d. It holds for all blocks
together as it holds for each. The last block is filled up with zeros, which are never
chosen before an element; if they are chosen, they lie beyond the end and are cut off.

Cost: 4 k + k log2(b) / 8 bytes for each block, 12 bits an index in blocks of 4096; with
values of 2 bits, k / 4 and their scales instead of 4 k. Many small selections take a
fraction of the time of one over all elements.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._checks import require_known
from relaxjax.compression._bits import pack, unpack, width_below
from relaxjax.compression._blocks import checked_blocks, flat_of
from relaxjax.compression._cast import identity
from relaxjax.compression._protocol import NO_FEEDBACK, Compressor, Law, contractive


class TopKPayload(NamedTuple):
    """Attributes: values: payload of [blocks k] values; indices: uint8[], packed."""

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
      block_size: number of elements in a block; None: all, which is exact top-k and
        slower. An array of fewer elements is one block.
      values: compressor of the values that are sent, without feedback, such as
        `quantize(2, block_size=64)`; an unbiased one is divided by 1 + omega. None
        sends them as they are.

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
    cut = checked_blocks(block_size, "top_k")
    inner = _compressor_of(values)
    inner_delta = inner.law.delta
    assert inner_delta is not None  # a contraction

    def counts(d: int) -> tuple[int, int]:
        """Number of blocks of d elements, and k."""
        width = cut.width(d)
        return -(-d // width), max(1, count_of(density, width))

    def compress(x, noise):
        blocks = cut.of(x)
        width = blocks.shape[-1]
        # By floats: the same selection by integer keys is 30 times slower on CPU.
        _, indices = jax.lax.top_k(jnp.abs(blocks), counts(x.size)[1])
        chosen = jnp.take_along_axis(blocks, indices, axis=-1)
        packed = pack(indices.ravel(), width_below(width))
        return TopKPayload(inner.compress(chosen.ravel(), noise), packed)

    def decompress(payload, size, noise):
        (rows, k), width = counts(size), cut.width(size)
        chosen = inner.decompress(payload.values, rows * k, noise).reshape(rows, k)
        indices = unpack(payload.indices, width_below(width), rows * k).reshape(rows, k)
        row = jnp.arange(rows)[:, None]
        blocks = jnp.zeros((rows, width), chosen.dtype)
        return flat_of(blocks.at[row, indices].set(chosen, unique_indices=True), size)

    def delta(d):
        rows, k = counts(d)
        return inner_delta(rows * k) * k / cut.width(d)

    name = "top_k" if values is None else f"top_k of {values.name}"
    law = Law(delta=delta)
    return Compressor(
        name, compress, decompress, law, random=inner.random, algorithm="one_shot"
    )


def check_density(density: float, caller: str) -> None:
    """Refuses anything outside (0, 1]."""
    require_known(caller, "density", density)
    if not 0 < density <= 1:
        raise ValueError(
            f"{caller}: density={density} must be in (0, 1], the share of the elements "
            "that is sent: 0.01 sends one in a hundred"
        )


def count_of(density: float, size: int) -> int:
    """Number of elements that are sent of `size`: rounded up, at least 1 if any."""
    exact = density * size * (1 - 1e-12)  # 0.07 * 100 is a little more than 7
    return min(size, max(1, math.ceil(exact)))


def _compressor_of(values: Compressor | None) -> Compressor:
    """The compressor of the values, a contraction."""
    if values is None:
        return identity()
    if values.feedback is not NO_FEEDBACK:
        raise ValueError(
            f"top_k: values={values.name} with {values.feedback.name}: what a value "
            "loses must come back at its place; give the bare compressor, and wrap "
            "top_k"
        )
    return contractive(values)
