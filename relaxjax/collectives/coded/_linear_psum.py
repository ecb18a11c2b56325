"""Linear psum: the backend's own all-reduce adds linear payloads; none is decoded.

Source: shared-mask sparsification (Stich et al. 2018; the random block of Vogels et al.
2019): with D linear and the same randomness everywhere, D(sum_i c_i) = sum_i D(c_i).

    mean = D(psum(C(x_i / n))),  lost_i = x_i - n D(C(x_i / n))

The division comes before the sum, which thus stays in range. One lossy stage. Cost: an
all-reduce of P(d) bytes, so 2 (n - 1) / n P(d) per worker.
"""

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax.collectives.wire._payload import Codec, Lossy, lossless, payload_of


def linear_psum(x: jax.Array, axis_name: AxisName, codec: Codec) -> Lossy:
    """The mean of `x` over the workers, for payloads that may be added.

    Args:
      x: float32[d].
      axis_name: the axis, or a tuple of axes.
      codec: a linear codec: the decoded sum of payloads is the sum of the decoded ones.

    Raises:
      NameError: outside the axis.
    """
    n = axis_size(axis_name, "linear_psum")
    if n == 1 or x.size == 0:
        return lossless(x, axis_name)
    place = jnp.uint32(0)
    payload = lax.optimization_barrier(codec.encode(x / n, place))
    mean = codec.decode(lax.psum(payload, axis_name), x.size, place)
    return Lossy(mean, x - n * codec.decode(payload, x.size, place))


def linear_psum_wire_bytes(size: int, axis_size: int, codec: Codec) -> int:
    """Bytes that each worker sends: 2 (n - 1) ceil(k / n) itemsize for k values.

    Args:
      size: number of elements d.
      axis_size: number of workers n.
      codec: a codec whose payload has k values for d elements.
    """
    leaves = jax.tree.leaves(payload_of(codec, size))
    return sum(
        2 * (axis_size - 1) * -(-leaf.size // axis_size) * leaf.dtype.itemsize
        for leaf in leaves
    )
