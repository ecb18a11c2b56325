"""Codebook: 8, 4 or 2 bits, which stand for the mean of their bucket.

Source: Uniform8BitQuantization of hivemind. With mean m and deviation s of a block and
n = 2^bits buckets:

    k = clip(round((x - m) n / (6 s)) + n / 2, 0, n - 1)
    C(x) = the mean of all elements of the block with the same k

A mean is a projection: <C(x), x - C(x)> = 0, hence

    |x|^2 = |C(x)|^2 + |x - C(x)|^2,   mean C(x) = mean x

and it never enlarges the error, delta = 0. No positive delta holds for all sizes: a
huge element may share the last bucket with any number of small ones.

All sums are of x divided by its largest magnitude, so that no square overflows. Those
of buckets are of integers: a GPU adds in any order, and integers come out the same.

Cost: bits d / 8 bytes and 4 2^bits for each block.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from relaxjax.compression._bits import check_bits, pack, unpack
from relaxjax.compression._blocks import checked_blocks, flat_of
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._scaling import over, over_largest

_PART = 1 << 16  # elements whose digits an int32 can sum
_UNIT = 2.0**-14  # of the first digit; three hold float32's 24 bits from 2^-18 on


class CodebookPayload(NamedTuple):
    """Attributes: codes: uint8[ceil(bits d / 8)]; values: float32[blocks, 2^bits]."""

    codes: jax.Array
    values: jax.Array


def codebook(bits: int, *, block_size: int | None = None) -> Compressor:
    """Buckets that divide six deviations evenly, and the mean of each.

    Args:
      bits: 8, 4 or 2.
      block_size: number of elements that share a codebook; None: all.

    Returns:
      A deterministic compressor, biased, that keeps each block's mean.

    Raises:
      ValueError: `bits` is another number, or `block_size` is not positive.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([1.0, 1.0, -2.0, -4.0])
      >>> out = compression.roundtrip(compression.codebook(2), x)
      >>> print(out.sum(), x.sum())
      -4.0 -4.0
    """
    check_bits(bits, "codebook")
    blocks = checked_blocks(block_size, "codebook")
    bins = 2**bits

    def compress(x, noise):
        y, most = over_largest(blocks.of(x))
        counts = jnp.asarray(blocks.counts(x.size))
        k = flat_of(_buckets(y, counts, bins), x.size)
        sums, counts = _totals(flat_of(y, x.size), k, y.shape, bins)
        values = sums / jnp.maximum(counts, 1) * most
        return CodebookPayload(pack(k.astype(jnp.uint8), bits), values)

    def decompress(payload, size, noise):
        k = blocks.of(unpack(payload.codes, bits, size))
        values = jnp.take_along_axis(payload.values, k.astype(jnp.int32), axis=-1)
        return flat_of(values, size)

    return Compressor(f"codebook{bits}", compress, decompress, Law(delta=lambda d: 0.0))


def _buckets(y: jax.Array, counts: jax.Array, bins: int) -> jax.Array:
    """The bucket of each element; the zeros that fill a block do not count."""
    counts = counts[:, None]
    mean = jnp.sum(y, axis=-1, keepdims=True) / counts
    inside = jax.lax.iota(counts.dtype, y.shape[-1]) < counts
    squares = jnp.where(inside, (y - mean) ** 2, 0)
    deviation = jnp.sqrt(jnp.sum(squares, axis=-1, keepdims=True) / counts)
    k = jnp.rint(over(y - mean, deviation) * (bins / 6)) + bins // 2
    return jnp.clip(k, 0, bins - 1).astype(jnp.int32)


def _totals(
    y: jax.Array, k: jax.Array, blocks: tuple[int, ...], bins: int
) -> tuple[jax.Array, jax.Array]:
    """float32[blocks, bins]: the sum and the number of the elements of each bucket.

    y is -1 to 1. Long blocks are summed in parts of at most `_PART` elements; neighbors
    are of different parts, so that they do not wait to add to the same sum.
    """
    count, length = blocks
    parts = -(-length // _PART)
    index = jax.lax.iota(jnp.int32, y.size)
    place = (index // length * parts + index % length % parts) * bins + k
    terms = jnp.stack([*_digits(y), jnp.ones(y.size, jnp.int32)], axis=1)
    zeros = jnp.zeros((count * parts * bins, terms.shape[1]), jnp.int32)
    added = zeros.at[place].add(terms, mode="promise_in_bounds")
    one, two, three, counts = jnp.moveaxis(added.astype(jnp.float32), 1, 0)
    sums = ((three * _UNIT + two) * _UNIT + one) * _UNIT
    shape = (count, parts, bins)
    return sums.reshape(shape).sum(axis=1), counts.reshape(shape).sum(axis=1)


def _digits(y: jax.Array) -> list[jax.Array]:
    """int32[d] each: y = d1 2^-14 + d2 2^-28 + d3 2^-42, of magnitudes up to 2^14."""
    digits = []
    for _ in range(3):
        y = y / _UNIT
        digits.append(jnp.rint(y).astype(jnp.int32))
        y = y - jnp.rint(y)
    return digits
