"""A compressor after the Hadamard transform of blocks: outliers are shared out.

Source: SDP4Bit (Jia et al. 2024), with blocks of 32 around four bits. With R the
orthonormal transform of blocks of B elements, the last filled with zeros:

    C'(x) = M R^T C(R x / M),  M = max |x|

R keeps lengths, so that C' is in U(omega) or B(delta) as C is, of as many elements as
the blocks have, but for the rounding of R. An outlier becomes B values of 1 / sqrt(B)
of it, and the largest of a block of Gaussian gradients stays what it is. Without M,
R x would overflow for the largest floats; with it, payloads cannot be added.

Cost: C's payload, of d filled up to whole blocks, and 4 bytes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._checks import check_type
from relaxjax.compression._drive import check_power_of_two, hadamard
from relaxjax.compression._protocol import NO_FEEDBACK, Compressor, Law
from relaxjax.compression._scaling import over_largest


class RotatedPayload(NamedTuple):
    """Attributes: payload: of the compressor inside; scale: float32[1], M."""

    payload: Any
    scale: jax.Array


def rotated(compressor: Compressor, *, block_size: int = 32) -> Compressor:
    """A compressor of blocks that the orthonormal Hadamard transform has mixed.

    Experimental: this may change in any release.

    Args:
      compressor: a compressor without feedback; put feedback around the result.
      block_size: number of elements that are mixed, a power of two.

    Returns:
      A compressor with the law of the one given, except that it is not linear.

    Raises:
      TypeError: `compressor` is not a `Compressor`.
      ValueError: `compressor` has feedback, or `block_size` is not a power of two.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.ones(32).at[0].set(20.0)  # an outlier, and 31 ones
      >>> four = compression.quantize(4)
      >>> def lost(code):
      ...     error = x - compression.roundtrip(code, x)
      ...     return round(float(jnp.linalg.norm(error)), 1)
      >>> lost(four), lost(compression.rotated(four))
      (5.6, 2.8)
    """
    check_power_of_two(block_size, "rotated")
    turn = Turn("rotated", block_size, hadamard, hadamard)
    return turned(compressor, turn)


class Turn(NamedTuple):
    """An orthonormal transform of the rows of [blocks, block_size], and its inverse."""

    name: str
    block_size: int
    there: Callable[[jax.Array], jax.Array]
    back: Callable[[jax.Array], jax.Array]


def turned(compressor: Compressor, turn: Turn) -> Compressor:
    """The compressor, of blocks that are turned before it and back after it."""
    name, block_size = turn.name, turn.block_size
    check_type(f"{name}: compressor", compressor, Compressor, "try quantize(4)")
    if compressor.feedback is not NO_FEEDBACK:
        raise ValueError(
            f"{name}: compressor={compressor.name} has {compressor.feedback.name}, "
            "which would see what is mixed: put it around, as in "
            f"error_feedback({name}(quantize(4)))"
        )

    def filled(size: int) -> int:
        return -(-size // block_size) * block_size

    def compress(x, noise):
        y, most = over_largest(jnp.pad(x, (0, -x.size % block_size)))
        mixed = turn.there(y.reshape(-1, block_size)).ravel()
        return RotatedPayload(compressor.compress(mixed, noise), most)

    def decompress(payload, size, noise):
        most = payload.scale
        y = compressor.decompress(payload.payload, filled(size), noise)
        x = turn.back(y.reshape(-1, block_size)).ravel()[:size] * most
        top = jnp.where(jnp.isfinite(most), np.finfo(np.float32).max, jnp.inf)
        return jnp.clip(x, -top, top)

    law = compressor.law
    omega, delta = (f and (lambda d, f=f: f(filled(d))) for f in (law.omega, law.delta))
    return compressor._replace(
        name=f"{name}_{compressor.name}",
        compress=compress,
        decompress=decompress,
        law=Law(omega, delta),
        algorithm="two_shot" if law.linear else compressor.algorithm,
    )
