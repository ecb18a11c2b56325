"""Hard threshold: the elements whose magnitude reaches a value.

Source: Strom 2015; Sahu et al. 2021 for the absolute bound. Shapes are static in XLA,
so there is room for `capacity` elements, and where more reach the value the largest are
sent:

    C(x)_i = x_i if |x_i| >= value and i is among the capacity largest, else 0
    |C(x) - x|_inf < value unless more elements than the capacity reach it

The bound is absolute: an array that is small everywhere is lost entirely, so C is a
contraction with delta = 0 only. Under error feedback the loss adds up until it reaches
the value.

Cost: 4 and log2(d) / 8 bytes for each of `capacity` places; unused ones hold 0.
"""

import jax
import jax.numpy as jnp

from relaxjax.compression._bits import pack, unpack, width_below
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._top_k import TopKPayload


def threshold(value: float, capacity: int) -> Compressor:
    """The elements of magnitude `value` or more, as far as there is room.

    Args:
      value: least magnitude that is sent, in units of the array, not negative; 0 makes
        it exact top-k.
      capacity: number of elements that a payload has room for.

    Returns:
      A deterministic compressor, biased: use error feedback. A NaN is sent.

    Raises:
      ValueError: `value` is negative or not finite; `capacity` is not a positive int.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([-1.0, -5.0, 2.0, 0.0])
      >>> print(compression.roundtrip(compression.threshold(2.0, capacity=3), x))
      [ 0. -5.  2.  0.]
    """
    _check(value, capacity)

    def compress(x, noise):
        magnitudes, indices = jax.lax.top_k(jnp.abs(x), min(capacity, x.size))
        values = jnp.where(magnitudes < value, 0.0, x[indices])
        return TopKPayload(values, pack(indices, width_below(x.size)))

    def decompress(payload, size, noise):
        (k,) = payload.values.shape
        indices = unpack(payload.indices, width_below(size), k)
        x = jnp.zeros(size, payload.values.dtype)
        return x.at[indices].set(payload.values, unique_indices=True)

    law = Law(delta=lambda d: 0.0)
    return Compressor("threshold", compress, decompress, law, algorithm="one_shot")


def _check(value: float, capacity: int) -> None:
    if not 0 <= value < float("inf"):
        raise ValueError(
            f"threshold: value={value} must be finite and not negative: it is compared "
            "with magnitudes"
        )
    if not isinstance(capacity, int) or capacity < 1:
        raise ValueError(
            f"threshold: capacity={capacity!r} must be a positive int, a number of "
            "elements; for a share of the elements use top_k"
        )
