"""Compressed one-shot: everybody sends a payload to everybody, and decodes them all.

Source: the sparse all-gather of top-k methods (Lin et al. 2018, DGC).

    c_i = C(x_i)
    gather (all-gather):  every worker receives c_0, .., c_{n-1}
    mean = (1/n) sum_j D(c_j),  lost_i = x_i - D(c_i)

One lossy stage. Cost: (n - 1) P(d) bytes per worker for a payload of P(d) bytes, and n
decodings.
"""

import jax
import jax.numpy as jnp

from relaxjax._core._axis import AxisName, axis_size
from relaxjax.collectives.wire._messages import gather_all
from relaxjax.collectives.wire._payload import (
    Codec,
    Lossy,
    lossless,
    message,
    message_bytes,
    opened,
)


def compressed_one_shot(x: jax.Array, axis_name: AxisName, codec: Codec) -> Lossy:
    """The mean of `x` over the workers, each sending one payload to all others.

    Args:
      x: float32[d].
      axis_name: the axis, or a tuple of axes.
      codec: the encoder and decoder.

    Raises:
      NameError: outside the axis.
    """
    n = axis_size(axis_name, "compressed_one_shot")
    if n == 1 or x.size == 0:
        return lossless(x, axis_name)
    place = jnp.uint32(0)
    bits, payload = message(codec, x, place)
    decode = jax.vmap(lambda row: opened(codec, row, x.size, place))
    mean = decode(gather_all(bits, axis_name)).sum(axis=0) / n
    return Lossy(mean, x - codec.decode(payload, x.size, place))


def compressed_one_shot_wire_bytes(size: int, axis_size: int, codec: Codec) -> int:
    """Bytes that each worker sends: (n - 1) P(d).

    Args:
      size: number of elements d.
      axis_size: number of workers n.
      codec: a codec whose payload takes P(d) bytes.
    """
    return (axis_size - 1) * message_bytes(codec, size)
