"""Microscaling: blocks of 32 small elements that share one power of two, in a byte.

Source: Rouhani et al. 2023, and OCP's Microscaling Formats v1.0. With M the largest |x|
of a block, of exponent E and mantissa m, and emax the element's largest exponent,

    floor   byte = E - emax                     the specification's own rule
    ceil    byte = E - emax, one more if m > 0
    even    byte = floor's, of M rounded to the element's mantissa
    rceil   d = M fl(1 / largest);  byte = d's exponent, one more if d's mantissa > 0
                                                cuBLAS, TransformerEngine, jax.nn

    byte in 0 .. 254, and 255 where M is not finite
    code = element(x 2^(127 - byte)),   C(x) = value 2^(byte - 127)

A block with a NaN or an infinity decodes to NaN, all of it; one of zeros has byte 0.
Scales are subnormal at byte 0, and processors take subnormal numbers for zero: x is
multiplied by two powers of two one after the other, neither of which is. What would
decode to more than the largest float32 becomes that.

floor saturates the largest elements by up to 12.5 % in e4m3 and 25 % in e2m1, even by
up to 9.7 % and 14 %; rceil and ceil saturate none. So rceil is the default.

Nearest rounding: with (M, a) in units of the scale, one element of M and the n others
of a, the worst block for an error e(.) has both in the middle between two values, or at
an end of the range of M that the rule leaves:

    1 - delta = max over M, a of (e(M)^2 + n e(a)^2) / (M^2 + n a^2)

Where the byte stops at 0, M is anything from 2 on, and elements below 2 are zeros.

Cost: bits d / 8 bytes and one for each block of 32: 8.25, 6.25 or 4.25 bits an element.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax._core._extremes import largest
from relaxjax._core._pieces import once_on_cpu
from relaxjax.compression._bits import pack, unpack
from relaxjax.compression._blocks import BlockPayload, Blocks, flat_of
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression.formats._elements import (
    BIAS,
    ELEMENTS,
    Element,
    exponent_field,
    power_of_two,
)
from relaxjax.compression.formats._worst_block import worst_ratio

BLOCK = 32
_CUT = Blocks(BLOCK)
_NAN = 255  # the byte of a block that is not finite


def _floor(m: jax.Array, element: Element) -> jax.Array:
    return exponent_field(m) - element.emax


def _ceil(m: jax.Array, element: Element) -> jax.Array:
    return _floor(m, element) + _one(_mantissa(m) > 0)


def _even(m: jax.Array, element: Element) -> jax.Array:
    half = 1 << (23 - element.mantissa - 1)
    rounded = lax.bitcast_convert_type(m, jnp.int32) + half
    return _floor(lax.bitcast_convert_type(rounded, jnp.float32), element)


def _rceil(m: jax.Array, element: Element) -> jax.Array:
    """From the significand alone, so that no processor flushes d.

    A d of exponent 0 is subnormal, and has one bit less.
    """
    one_to_two = lax.bitcast_convert_type(_mantissa(m) | (BIAS << 23), jnp.float32)
    d = one_to_two * np.float32(1 / element.largest)
    exponent = exponent_field(m) - BIAS + exponent_field(d)
    byte = exponent + _one(_mantissa(d) > _one(exponent == 0))
    return jnp.where(exponent_field(m) > 0, byte, 0)


def _one(where: jax.Array) -> jax.Array:
    return where.astype(jnp.int32)


def _mantissa(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, jnp.int32) & 0x7FFFFF


SCALES: dict[str, Callable[[jax.Array, Element], jax.Array]] = {
    "rceil": _rceil,
    "floor": _floor,
    "even": _even,
    "ceil": _ceil,
}


def mx(element: str, *, scale: str = "rceil") -> Compressor:
    """Blocks of 32 elements of four, six or eight bits, with a power of two for each.

    Args:
      element: "e4m3", "e5m2", "e3m2", "e2m3" or "e2m1", floats of so many bits of
        exponent and mantissa, or "int8", two's complement over 64.
      scale: how the power of two follows from the largest element: "rceil", the least
        by which nothing saturates; "floor", the specification's own, "even" and "ceil".

    Returns:
      A deterministic compressor, biased. Its payload's `codes` are the elements, packed
      with the lowest bits first, and its `scale` is one E8M0 byte for each block.

    Raises:
      ValueError: `element` or `scale` is another one.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([1.9, -1.0, 0.3, 0.01])
      >>> payload = compression.mx("e4m3").compress(x, None)
      >>> payload.scale, payload.codes
      (Array([120], dtype=uint8), Array([119, 240,  98,  58], dtype=uint8))
      >>> print(compression.roundtrip(compression.mx("e2m1"), x))
      [ 2.   -1.    0.25  0.  ]
    """
    for name, value, known in (
        ("element", element, ELEMENTS),
        ("scale", scale, SCALES),
    ):
        if value not in known:
            raise ValueError(f"mx: {name}={value!r} must be one of {', '.join(known)}")
    kind, byte_of = ELEMENTS[element], SCALES[scale]

    def compress(x, noise):
        blocks = _CUT.of(x)
        most = largest(blocks, -1)
        finite = jnp.isfinite(most)
        byte = jnp.where(finite, jnp.clip(byte_of(most, kind), 0, _NAN - 1), _NAN)
        byte = once_on_cpu(byte)
        units = times_power(blocks, BIAS - byte[:, None])
        codes = kind.encode(jnp.where(finite[:, None], units, 0))
        packed = pack(once_on_cpu(flat_of(codes, x.size)), kind.bits)
        return BlockPayload(packed, byte.astype(jnp.uint8))

    def decompress(payload, size, noise):
        units = kind.decode(unpack(payload.codes, kind.bits, size))
        byte = payload.scale.astype(jnp.int32)[:, None]
        x = times_power(_CUT.of(units), byte - BIAS)
        top = np.finfo(np.float32).max
        return flat_of(jnp.where(byte == _NAN, jnp.nan, jnp.clip(x, -top, top)), size)

    def delta(d: int) -> float:
        return 1 - _worst(element, scale, _CUT.width(d))

    return Compressor(f"mx_{element}", compress, decompress, Law(delta=delta))


def times_power(x: jax.Array, exponent: jax.Array) -> jax.Array:
    """`x` 2^exponent, for exponents from -128 to 127 and beyond what one factor has."""
    half = exponent >> 1
    return x * power_of_two(half) * power_of_two(exponent - half)


@functools.cache
def _worst(element: str, scale: str, width: int) -> float:
    kind = ELEMENTS[element]
    top, bits = 2.0**kind.emax, kind.mantissa
    low, high = {
        "rceil": (kind.largest / 2, kind.largest),
        "floor": (top, 2 * top),
        "even": (top * (1 - 2.0 ** -(bits + 2)), 2 * top * (1 - 2.0 ** -(bits + 2))),
        "ceil": (top / 2, top),
    }[scale]
    least = worst_ratio(kind.values, 2.0, high, width, floor=2.0)
    return max(worst_ratio(kind.values, low, high, width), least)
