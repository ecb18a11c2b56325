"""Compressed between hosts, exact inside: only the slow axis carries payloads.

Source: BAGUA (Gan et al. 2021), hierarchical communication; ZeRO++ (Wang et al. 2023).

On h hosts of m devices, worker j of each host:

    inside (reduce-scatter):  s_j = the host's mean of chunk j, in full precision
    between hosts:            compressed two-shot of s_j
    inside (all-gather):      every device receives all chunks, in full precision

Two lossy stages. Cost: 2 (m - 1) c 4 bytes inside and 2 (h - 1) P(ceil(c / h)) between
hosts, per worker, with c = ceil(d / m).
"""

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax.collectives.coded._compressed_two_shot import (
    compressed_two_shot,
    compressed_two_shot_wire_bytes,
)
from relaxjax.collectives.exact._hierarchical import two_axes
from relaxjax.collectives.exact._two_shot import gather_chunks, scatter_reduce
from relaxjax.collectives.wire._payload import Codec, Lossy, lossless


def compressed_hierarchical(x: jax.Array, axis_name: AxisName, codec: Codec) -> Lossy:
    """The mean of `x` over two axes, compressed on the outer one.

    Args:
      x: float32[d].
      axis_name: two axes, the outer (slow) one first, as in `("host", "device")`.
      codec: the encoder and decoder.

    Raises:
      ValueError: not two axes.
      NameError: outside the axes.
    """
    outer, inner = two_axes(axis_name, "compressed_hierarchical")
    axis_size(axis_name, "compressed_hierarchical")
    m = lax.axis_size(inner)
    if m == 1 or x.size == 0:
        x, _ = lossless(x, inner)
        return compressed_two_shot(x, outer, codec)
    mean, lost = compressed_two_shot(scatter_reduce(x, inner) / m, outer, codec)
    chunks = jnp.zeros((m, lost.size), x.dtype)
    j = lax.axis_index(inner)
    chunks = lax.dynamic_update_index_in_dim(chunks, m * lost, j, 0)
    return Lossy(gather_chunks(mean, inner, x), chunks.ravel()[: x.size])


def compressed_hierarchical_wire_bytes(
    size: int, axis_sizes: tuple[int, int], codec: Codec
) -> int:
    """Bytes that each worker sends on both axes together.

    Args:
      size: number of elements d.
      axis_sizes: number of hosts and of devices per host.
      codec: a codec whose payload of c elements takes P(c) bytes.
    """
    hosts, devices = axis_sizes
    chunk = -(-size // devices)
    across = compressed_two_shot_wire_bytes(chunk, hosts, codec)
    return 2 * (devices - 1) * chunk * 4 + across
