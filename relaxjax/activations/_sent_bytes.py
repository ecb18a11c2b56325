"""What a collective of activations sends, each way, in closed form.

With n workers, r rows of h elements in a part, P and P' the bytes of a row's message in
the forward and in the backward pass (h times the item size without codes):

    all_gather, reduce_scatter, all_to_all   (n - 1) r P     (n - 1) r P'
    all_reduce                               2 (n - 1) ceil(rows / n) P     0
    copy                                     0    2 (n - 1) ceil(rows / n) P'
    send                                     r P             r P'

An all-reduce without codes is cut into elements: 2 (n - 1) ceil(size / n) of them.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax.compression import Compressor, payload_bytes

_SUMS = {"all_reduce", "copy"}
_CUT = {"reduce_scatter", "all_to_all"}
_WHOLE = {"all_gather", "send"}


class SentBytes(NamedTuple):
    """Bytes that the busiest worker sends in one call.

    Attributes:
      forward: in the forward pass.
      backward: in the backward pass.
    """

    forward: int
    backward: int

    @property
    def total(self) -> int:
        """Both ways."""
        return self.forward + self.backward


def sent_bytes(
    collective: str,
    x: Any,
    workers: int,
    *,
    dimension: int = 0,
    forward: Compressor | None = None,
    backward: Compressor | None = None,
) -> SentBytes:
    """Bytes that the busiest worker sends, each way.

    Args:
      collective: "all_gather", "reduce_scatter", "all_reduce", "copy", "all_to_all" or
        "send".
      x: what a worker gives to it: an array or `jax.ShapeDtypeStruct`.
      workers: number of workers n on the axis.
      dimension: the one that is shared out, for `reduce_scatter` and `all_to_all`.
      forward: compressor of the forward pass; None: as it is.
      backward: compressor of the backward pass.

    Returns:
      A `SentBytes`; scales are in it.

    Raises:
      ValueError: `collective` is another one.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import activations, compression
      >>> x = jax.ShapeDtypeStruct((8, 7168), jnp.bfloat16)
      >>> activations.sent_bytes("all_to_all", x, 8, forward=compression.mx("e4m3"))
      SentBytes(forward=51744, backward=100352)
    """
    known = _WHOLE | _CUT | _SUMS
    if collective not in known:
        raise ValueError(
            f"sent_bytes: collective={collective!r} must be one of {sorted(known)}"
        )
    x = jax.ShapeDtypeStruct(x.shape, x.dtype)
    part = list(x.shape)
    if collective in _CUT:
        part[dimension] //= workers
    if collective == "all_reduce":
        return SentBytes(_sum(x, workers, forward), 0)
    if collective == "copy":
        return SentBytes(0, _sum(x, workers, backward))
    times = (workers > 1) if collective == "send" else workers - 1
    return SentBytes(*(times * _part(part, x.dtype, c) for c in (forward, backward)))


def _part(shape: list[int], dtype: jnp.dtype, code: Compressor | None) -> int:
    size = math.prod(shape)
    if code is None or not size:
        return size * dtype.itemsize
    width = shape[-1] if shape else 1
    return size // width * _row(width, code)


def _sum(x: jax.ShapeDtypeStruct, n: int, code: Compressor | None) -> int:
    if code is None or not x.size:
        return 2 * (n - 1) * -(-x.size // n) * x.dtype.itemsize
    width = x.shape[-1] if x.shape else 1
    return 2 * (n - 1) * -(-(x.size // width) // n) * _row(width, code)


def _row(width: int, code: Compressor) -> int:
    return payload_bytes(code, jax.ShapeDtypeStruct((width,), jnp.float32))
