"""DRIVE: one bit per element after a random rotation.

Source: Vargaftik et al. 2021 (DRIVE). R flips signs at random, alike on all workers,
and applies the orthonormal Hadamard transform to blocks of B, a power of two, filled
with zeros. With y = R x for each block:

    C(x) = S R^T sign(y),   D = |y|_1^2 / (B |y|_2^2), between 1 / B and 1

    drive:         S = |y|_2^2 / |y|_1   <C(x), x> = |x|^2,  error (1 / D - 1) |x|^2
    rotated_sign:  S = |y|_1 / B         a projection,       error (1 - D) |x|^2

DRIVE has the right length along x, and its mean is x for rotations drawn uniformly.
Hadamard's are not: the second element of x = (2, 1) is never delivered, and for
(1, 1, 1, 1) the mean error is 1.5 |x|^2. So no law is declared, and error feedback
refuses it.

The projection is a contraction whatever x is. Each y_i is a Rademacher sum, with
E |y_i| >= |x| / sqrt(2 B) (Szarek 1976), hence E D >= (E sqrt(D))^2 >= 1/2:

    delta = 1/2,  attained by two equal elements; 2 / pi for Gaussian x

while the sign without a rotation has 1 / d.

Cost: d / 8 bytes, with d filled up to whole blocks, and 4 for each block.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._checks import is_whole
from relaxjax._core._random import bits as random_bits
from relaxjax.compression._bits import pack, unpack
from relaxjax.compression._blocks import BlockPayload, Blocks, flat_of
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._scaling import over, over_largest, saturated


def drive(*, block_size: int = 1024) -> Compressor:
    """Signs after a random rotation, exact in length along x.

    Args:
      block_size: number of elements that are rotated together, a power of two.

    Returns:
      A random compressor that declares no law; for error feedback use `rotated_sign`.

    Raises:
      ValueError: `block_size` is not a power of two.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([1.0, -2.0, 3.0, -4.0])  # of squared length 30
      >>> round(float(compression.roundtrip(compression.drive(), x, key=0) @ x), 3)
      30.0
    """

    def scale(y: jax.Array) -> jax.Array:
        return over(jnp.sum(y * y, axis=-1), jnp.sum(jnp.abs(y), axis=-1))

    return _rotated("drive", block_size, scale, Law())


def rotated_sign(*, block_size: int = 1024) -> Compressor:
    """Signs after a random rotation, times the mean magnitude there.

    Args:
      block_size: number of elements that are rotated together, a power of two.

    Returns:
      A random compressor, biased, which loses at most half: use error feedback.

    Raises:
      ValueError: `block_size` is not a power of two.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([1.0, -2.0, 3.0, -4.0])
      >>> lost = x - compression.roundtrip(compression.rotated_sign(), x, key=0)
      >>> bool(lost @ lost < x @ x)
      True
    """
    law = Law(delta=lambda d: 1 / 2)
    return _rotated("rotated_sign", block_size, lambda y: jnp.abs(y).mean(-1), law)


def _rotated(name: str, block_size: int, scale, law: Law) -> Compressor:
    check_power_of_two(block_size, name)

    def width(size: int) -> int:
        return min(block_size, 1 << max(0, size - 1).bit_length())

    def flips(shape: tuple[int, ...], noise) -> jax.Array:
        odd = random_bits(noise.shared, math.prod(shape)) >> 31
        return 1 - 2 * odd.reshape(shape).astype(jnp.float32)

    def compress(x, noise):
        whole = jnp.pad(x, (0, -x.size % width(x.size)))
        y, most = over_largest(Blocks(width(x.size)).of(whole))
        y = hadamard(y * flips(y.shape, noise))
        positive = pack((y >= 0).astype(jnp.uint8), 1)
        most = most[:, 0]
        return BlockPayload(positive, saturated(scale(y) * most, most))

    def decompress(payload, size, noise):
        bits = unpack(payload.codes, 1, width(size))
        signs = hadamard(bits.astype(jnp.float32) * 2 - 1)
        signs = signs * flips(signs.shape, noise)
        scale = payload.scale[:, None]
        return flat_of(saturated(signs * scale, scale), size)

    return Compressor(name, compress, decompress, law, random=True)


def check_power_of_two(block_size: int, caller: str) -> None:
    """Refuses other sizes of blocks, which a Hadamard matrix cannot turn."""
    if not is_whole(block_size) or block_size < 1 or block_size & (block_size - 1):
        raise ValueError(f"{caller}: block_size={block_size!r} must be a power of two")


def hadamard(y: jax.Array) -> jax.Array:
    """The orthonormal transform of the last axis, as two products with small ones."""
    size = y.shape[-1]
    low = 1 << (size.bit_length() - 1) // 2
    left, right = _matrix(size // low), _matrix(low)
    grid = y.reshape(*y.shape[:-1], size // low, low)
    exact = jax.lax.Precision.HIGHEST
    grid = jnp.matmul(grid, right, precision=exact)
    grid = jnp.einsum("ij,...jk->...ik", left, grid, precision=exact)
    return grid.reshape(y.shape) * np.float32(1 / math.sqrt(size))


def _matrix(size: int) -> np.ndarray:
    """Symmetric: entry (i, j) is (-1)^popcount(i and j)."""
    i = np.arange(size)
    return 1 - 2 * (np.bitwise_count(i[:, None] & i) % 2).astype(np.float32)
