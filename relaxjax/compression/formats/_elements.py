"""Elements of four, six and eight bits: floats of few exponents, and a fixed point.

Source: Rouhani et al. 2023, and OCP's Microscaling Formats v1.0. A float has a sign, a
field f of exponents and mb bits of mantissa k; its exponents begin at emin, where it is
linear down to zero:

    value = +-k 2^(emin - mb)                  f = 0
            +-(2^mb + k) 2^(f - 1 + emin - mb) f > 0

    encode: e = max(exponent of a, emin),  q = rint(a 2^(mb - e)),
            code = q + (e - emin) 2^mb

with a = min(|y|, largest). A q that rounds up to 2^(mb + 1) carries into f, as it must.
"int8" is k / 64 in two's complement, without -128.

All of it is integer arithmetic and products by powers of two: nothing for a compiler to
fold away, and no number that a processor would flush. Halves go to even, and what is
too large becomes the largest. No input is infinite or NaN: the block's scale says so.

Cost: a dozen operations for each element, in one pass.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

BIAS = 127  # of the exponents of float32


class Element(NamedTuple):
    """A format of single elements.

    Attributes:
      bits: bits of a code.
      mantissa: bits of the mantissa, without the leading one.
      emax: the exponent of the largest value.
      values: float64[k], all magnitudes in order.
      encode: float32[...], finite, to uint8[...], codes below 2^bits.
      decode: the inverse, to float32[...].
    """

    bits: int
    mantissa: int
    emax: int
    values: np.ndarray
    encode: Callable[[jax.Array], jax.Array]
    decode: Callable[[jax.Array], jax.Array]

    @property
    def largest(self) -> float:
        """The largest value."""
        return float(self.values[-1])


def exponent_field(x: jax.Array) -> jax.Array:
    """int32: the exponents of |x| as float32 keeps them, from 0 to 255."""
    return (lax.bitcast_convert_type(x, jnp.int32) >> 23) & 255


def power_of_two(exponent: jax.Array) -> jax.Array:
    """float32 of 2^exponent, for int32 from -126 to 127."""
    return lax.bitcast_convert_type((exponent + BIAS) << 23, jnp.float32)


def _float(exponents: int, mantissa: int, emax: int, largest: float) -> Element:
    sign_at = exponents + mantissa
    emin = 2 - 2 ** (exponents - 1)  # 1 less the bias
    fields, ks = np.divmod(np.arange(2**sign_at), 2**mantissa)
    values = (ks + (fields > 0) * 2**mantissa) * 2.0 ** (
        np.maximum(fields, 1) - 1 + emin - mantissa
    )

    def encode(y: jax.Array) -> jax.Array:
        a = jnp.minimum(jnp.abs(y), largest)
        e = jnp.maximum(exponent_field(a) - BIAS, emin)
        q = jnp.rint(a * power_of_two(mantissa - e)).astype(jnp.int32)
        sign = jnp.signbit(y).astype(jnp.int32) << sign_at
        return (q + ((e - emin) << mantissa) | sign).astype(jnp.uint8)

    def decode(codes: jax.Array) -> jax.Array:
        code = codes.astype(jnp.int32)
        f = (code & (2**sign_at - 1)) >> mantissa
        k = code & (2**mantissa - 1)
        whole = jnp.where(f > 0, k + 2**mantissa, k).astype(jnp.float32)
        a = whole * power_of_two(jnp.maximum(f, 1) - 1 + emin - mantissa)
        return jnp.where(code >> sign_at == 1, -a, a)

    said = values[values <= largest]
    return Element(1 + sign_at, mantissa, emax, said, encode, decode)


def _fixed_point() -> Element:
    def encode(y: jax.Array) -> jax.Array:
        q = jnp.clip(jnp.rint(y * 64), -127, 127).astype(jnp.int32)
        return (q & 255).astype(jnp.uint8)

    def decode(codes: jax.Array) -> jax.Array:
        q = (codes.astype(jnp.int32) ^ 128) - 128
        return q.astype(jnp.float32) * (1 / 64)

    return Element(8, 6, 0, np.arange(128) / 64, encode, decode)


ELEMENTS = {
    "e4m3": _float(4, 3, 8, 448.0),
    "e5m2": _float(5, 2, 15, 57344.0),
    "e3m2": _float(3, 2, 4, 28.0),
    "e2m3": _float(2, 3, 2, 7.5),
    "e2m1": _float(2, 1, 2, 6.0),
    "int8": _fixed_point(),
}
"""By name: bits of exponent and mantissa."""
