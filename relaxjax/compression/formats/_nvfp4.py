"""NVFP4: blocks of 16 four-bit floats, an eight-bit scale for each, and one for all.

Source: NVIDIA 2025, and the recipe of TransformerEngine. With M the largest |x| of all
and B of a block,

    s = e4m3(448 B / M),  code = e2m1(2688 x / (M s)),  C(x) = value (s / 2688) M

which is e2m1 x s x g with g = M / (448 x 6). M travels instead of g, as g is subnormal
for M below 2^-114, and processors take that for zero; M itself decodes exactly.

A block whose B is 2e-6 of M or less is lost. M is NaN where anything is not finite, and
then so is all that is decoded.

With s normal, B / (M s) is at most a 17th off, so that one element of a block lies
between 6 x 16 / 17 and 6 x 17 / 16, and r = max over them of what `worst_ratio` says.
Blocks of subnormal s have B <= 2^-6 M / 448 and may lose all of it, together
b = d (2^-6 / 448)^2 of M^2:

    delta = (1 - r) / (1 + b)

Cost: d / 2 bytes, one for each block of 16, and 4: 4.5 bits an element.
"""

from typing import NamedTuple

import jax

from relaxjax._core._extremes import largest
from relaxjax._core._pieces import once_on_cpu
from relaxjax.compression._bits import pack, unpack
from relaxjax.compression._blocks import Blocks, flat_of
from relaxjax.compression._protocol import Compressor, Law
from relaxjax.compression._scaling import over, over_largest
from relaxjax.compression.formats._elements import ELEMENTS
from relaxjax.compression.formats._worst_block import worst_ratio

_CUT = Blocks(16)
_CODE, _SCALE = ELEMENTS["e2m1"], ELEMENTS["e4m3"]
_MOST = _CODE.largest * _SCALE.largest  # 2688


class NVFP4Payload(NamedTuple):
    """What travels.

    Attributes:
      codes: uint8[ceil(d / 2)], two elements each, the first in the lower bits.
      scale: uint8[blocks], as float8_e4m3fn.
      most: float32[1], 2688 times the scale of all; NaN where x is not finite.
    """

    codes: jax.Array
    scale: jax.Array
    most: jax.Array


def nvfp4() -> Compressor:
    """Blocks of 16 elements of four bits, an eight-bit scale for each and one for all.

    Returns:
      A deterministic compressor, biased. Its payload has `codes`, `scale` and `most`.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax import compression
      >>> x = jnp.array([1.9, -1.0, 0.3, 0.01])
      >>> print(compression.roundtrip(compression.nvfp4(), x))
      [ 1.9        -0.95        0.31666666  0.        ]
    """

    def compress(x, noise):
        unit, most = over_largest(x)
        blocks = _CUT.of(unit)
        s = _SCALE.encode(_SCALE.largest * largest(blocks, -1))
        scales = once_on_cpu(_SCALE.decode(s)[:, None])
        units = over(_MOST * blocks, scales)  # less than 0.006 where s is 0
        packed = pack(flat_of(_CODE.encode(units), x.size), _CODE.bits)
        return NVFP4Payload(packed, s, most)

    def decompress(payload, size, noise):
        units = _CODE.decode(unpack(payload.codes, _CODE.bits, size))
        scales = _SCALE.decode(payload.scale)[:, None] / _MOST
        return flat_of(_CUT.of(units) * scales, size) * payload.most

    def delta(d: int) -> float:
        width = _CUT.width(d)
        r = worst_ratio(_CODE.values, 6 * 16 / 17, 6 * 17 / 16, width)
        return (1 - r) / (1 + d * (2.0**-6 / 448) ** 2)

    return Compressor("nvfp4", compress, decompress, Law(delta=delta))
