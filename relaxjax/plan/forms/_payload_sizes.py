"""How many bytes a named compressor makes of d elements, without tracing it.

    dense     ceil(b d / 8) + s ceil(d / B)     b bits an element, s bytes a block of B
    sparse    4 k + ceil(k i / 8)               k of d, with indices of i bits or none

A compressor without a form is traced (`relaxjax.compression.payload_bytes`), which is
what the tests compare each form with.

Cost: O(1).
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, partial

import jax
import jax.numpy as jnp

from relaxjax.compression import (
    COMPRESSORS,
    Compressor,
    count_of,
    packed_bytes,
    payload_bytes,
    width_below,
)

_SHARE, _BLOCK, _ROOM = 0.01, 4096, 1024  # of `top_k`, `random_k` and `threshold`
_ROTATED = 1024


def _dense(
    bits: int | Fraction, block_bytes: int = 0, block: int = 128, message: int = 0
) -> Callable[[int], int]:
    return lambda d: math.ceil(bits * d / 8) + block_bytes * -(-d // block) + message


def largest(share: float, block: int, values: Callable[[int], int], d: int) -> int:
    """The largest of each block, in so many bytes for all, and where they lie."""
    width = min(block, d)
    k = -(-d // width) * count_of(share, width)
    return values(k) + packed_bytes(k, width_below(width))


def _threshold(d: int) -> int:
    k = min(_ROOM, d)
    return 4 * k + packed_bytes(k, width_below(d))


def _rotated(d: int) -> int:
    width = min(_ROTATED, 1 << (d - 1).bit_length())
    return -(-d // width) * (packed_bytes(width, 1) + 4)


def _sampled(d: int) -> int:
    return 4 * count_of(_SHARE, d)


FORMS: Mapping[str, Callable[[int], int]] = {
    "identity": _dense(32),
    **{name: _dense(16) for name in ("bf16", "fp16")},
    "fp8": _dense(8, 4),
    **{f"mx_{e}": _dense(8, 1, 32) for e in ("e4m3", "e5m2", "int8")},
    **{f"mx_{e}": _dense(6, 1, 32) for e in ("e3m2", "e2m3")},
    "mx_e2m1": _dense(4, 1, 32),
    "nvfp4": _dense(4, 1, 16, 4),
    **{f"{n}{b}": _dense(b, 4) for n in ("quantize", "stochastic") for b in (8, 4, 2)},
    "min_max_uint8": _dense(8, message=8),
    **{f"codebook{b}": _dense(b, message=4 << b) for b in (8, 4, 2)},
    "qsgd": _dense(4, 4),
    "tern_grad": _dense(Fraction(8, 5), message=4),
    "natural": _dense(9),
    "dithering": _dense(4, 4),
    "sign": _dense(1, message=4),
    **dict.fromkeys(("drive", "rotated_sign"), _rotated),
    "top_k": partial(largest, _SHARE, _BLOCK, _dense(32)),
    **dict.fromkeys(("random_k", "random_block"), _sampled),
    "threshold": _threshold,
}
"""From the names of `COMPRESSORS` to the bytes of d elements, d at least 1."""


@cache
def compressor_named(name: str) -> Compressor:
    """A compressor, the same object each time."""
    return COMPRESSORS[name]()


@cache
def payload_size(name: str) -> Callable[[int], int]:
    """From a number of elements to the bytes of their payload.

    Args:
      name: a compressor of `relaxjax train`, without its feedback.
    """
    return FORMS.get(name) or cache(partial(traced, name))


def traced(name: str, elements: int) -> int:
    """The bytes that the compressor's own program makes."""
    flat = jax.ShapeDtypeStruct((elements,), jnp.float32)
    return payload_bytes(compressor_named(name), flat)
