"""A compressor in one file: two bits for each element, and one scale.

    C(x)_i = s c_i,  c_i the nearest of -1, 0 and 1 to x_i / s,  s = max |x|
    |C(x) - x|^2 <= |x|^2 - s^2 <= (1 - 1 / d) |x|^2

as the largest element is exact, and no other ends up farther from x_i than 0 is. Check
it with `relaxjax check FILE.py`. In the library it is this file and one row,
`"ternary": ternary`, of COMPRESSORS in relaxjax/compression/_rows.py.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from relaxjax.compression import Compressor, Law, over_largest

_SHIFTS = (0, 2, 4, 6)  # four codes to a byte


class Payload(NamedTuple):
    """Attributes: codes: uint8[ceil(d / 4)]; scale: float32[]."""

    codes: jax.Array
    scale: jax.Array


def ternary() -> Compressor:
    """The nearest of three levels. Biased: use error feedback."""

    def compress(x, noise):
        del noise  # a random compressor draws from it, and says random=True
        # A NaN or an infinity in x makes the scale NaN, and shows on every receiver.
        unit, scale = over_largest(x)
        nearest = jnp.round(unit)
        codes = (jnp.clip(nearest, -1, 1) + 1).astype(jnp.uint8)
        rows = jnp.pad(codes, (0, -x.size % 4)).reshape(-1, 4)
        packed = rows << jnp.array(_SHIFTS, jnp.uint8)
        return Payload(jnp.sum(packed, axis=1, dtype=jnp.uint8), scale[0])

    def decompress(payload, size, noise):
        del noise
        rows = payload.codes[:, None] >> jnp.array(_SHIFTS, jnp.uint8)
        codes = (rows & 3).ravel()[:size].astype(jnp.float32)
        return payload.scale * (codes - 1)

    return Compressor(
        "ternary", compress, decompress, Law(delta=lambda d: 1 / max(1, d))
    )


# The closed form of a payload of `size` elements, compared with the program.
BYTES = {"ternary": lambda size: -(-size // 4) + 4}
