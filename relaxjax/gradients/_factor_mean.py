"""The messages of PowerSGD: all P of a step, or all Q, and their mean over the workers.

    32, 16 bits    a sum of floats, rounded before it; what is rounded is nobody's loss
    8 bits         codes of `relaxjax.compression.quantize`, and what each worker lost

P and Q go column by column, so that a block of a code is of one singular vector.

Cost: of the algorithm that carries them, and a copy each way.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax.collectives import Lossy
from relaxjax.compression import Compressor, quantize
from relaxjax.gradients._compressed_mean import EXCHANGES, as_codec
from relaxjax.gradients._exact_mean import ALGORITHMS
from relaxjax.gradients._low_rank import Mean
from relaxjax.gradients._packing import pack, unpack

FLOATS = {32: jnp.float32, 16: jnp.bfloat16}
CODE = 8
"""Bits; 4 cost more quality than half the rank (docs/benchmarks.md)."""


def factor_codec(bits: int) -> Compressor | None:
    """What encodes floats, if anything does.

    Args:
      bits: of a float in a message.
    """
    return quantize(bits) if bits == CODE else None


def factor_mean_fn(axis_name: AxisName, *, algorithm: str, bits: int) -> Mean:
    """From arrays to their means over the workers, in one message.

    Args:
      axis_name: the workers' axes.
      algorithm: what adds floats, or carries codes.
      bits: of a float in a message: a key of `FLOATS`, or `CODE`.
    """
    code = factor_codec(bits)
    send: Callable[[jax.Array], Lossy] = (
        functools.partial(_summed, axis_name, algorithm, FLOATS[bits])
        if code is None
        else functools.partial(_coded, axis_name, algorithm, code)
    )

    def mean(arrays: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        columns = [_turned(x) for x in arrays]
        both = send(pack(columns))
        out, lost = ([_turned(x) for x in unpack(flat, columns)] for flat in both)
        return out, lost

    return mean


def _turned(x: jax.Array) -> jax.Array:
    return jnp.swapaxes(x, -1, -2) if x.ndim > 1 else x


def _summed(axis_name: AxisName, algorithm: str, dtype: Any, flat: jax.Array) -> Lossy:
    total = lax.psum if algorithm == "psum" else ALGORITHMS[algorithm]
    sums = total(flat.astype(dtype), axis_name).astype(jnp.float32)
    return Lossy(sums / axis_size(axis_name, "power_sgd"), jnp.zeros_like(flat))


def _coded(
    axis_name: AxisName, algorithm: str, code: Compressor, flat: jax.Array
) -> Lossy:
    codec = as_codec(code, (), jnp.uint32(0))
    return EXCHANGES[algorithm].run(flat, axis_name, codec)
