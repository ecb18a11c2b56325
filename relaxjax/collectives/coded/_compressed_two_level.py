"""Compressed on two levels: payloads inside a host, and a share of them between hosts.

Source: the hierarchical all-to-all of ZeRO++ (Wang et al. 2023, qgZ), and a gather that
passes on what it receives.

On h hosts of m devices, with x cut into m chunks of c = ceil(d / m) elements, and each
chunk into h pieces of p = ceil(c / h); device j of host a:

    scatter inside:         receives C(x_i[chunk j]) of the other devices i
    mean:                   s_j, of the host
    scatter between hosts:  receives C(s_j[piece a]) of the other hosts' devices j
    mean:                   q_ja, of all
    gather between hosts:   receives C(q_j0), .., C(q_j,h-1), of the devices j
    gather inside:          receives these h payloads of every other device, as they are

What stays is not compressed: a device's own chunk, and its own piece of that. Its
losses of the last three steps are booked at its own chunk, m-fold, as its host has m
devices.

The mean is encoded once, by the one device that has it. Encoding each chunk anew for
the gather inside would send the same number of bytes, lose more, and let hosts that
round at random see different means.

Three lossy stages. Cost: (m - 1) (P(c) + h P(p)) bytes inside and 2 (h - 1) P(p)
between hosts, per worker: an m-th of what a flat exchange sends there.
"""

import jax
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax.collectives.coded._compressed_two_shot import scattered
from relaxjax.collectives.exact._hierarchical import two_axes
from relaxjax.collectives.wire._messages import chunks_of, gather
from relaxjax.collectives.wire._payload import (
    Codec,
    Lossy,
    lossless,
    message,
    message_bytes,
    opened,
    places,
)


def compressed_two_level(x: jax.Array, axis_name: AxisName, codec: Codec) -> Lossy:
    """The mean of `x` over two axes, compressed on both.

    Args:
      x: float32[d].
      axis_name: two axes, the outer (slow) one first, as in `("host", "device")`.
      codec: the encoder and decoder.

    Raises:
      ValueError: not two axes.
      NameError: outside the axes.
    """
    outer, inner = two_axes(axis_name, "compressed_two_level")
    if axis_size(axis_name, "compressed_two_level") == 1 or x.size == 0:
        return lossless(x, axis_name)
    m, h = lax.axis_size(inner), lax.axis_size(outer)
    j, a = lax.axis_index(inner), lax.axis_index(outer)
    chunks = chunks_of(x, m)  # [m, c]
    between, last = places(m, 2 * m * h).reshape(2, m, h)

    s, lost = scattered(codec, chunks, inner, places(0, m))
    q, across = scattered(codec, chunks_of(s, h), outer, between[j])
    bits, payload = message(codec, q, last[j, a])
    by_server = h * (q - codec.decode(payload, q.size, last[j, a]))
    across = lax.dynamic_update_index_in_dim(across, by_server, a, 0)
    at_own_chunk = m * across.ravel()[: s.size]
    lost = lax.dynamic_update_index_in_dim(lost, at_own_chunk, j, 0)

    bits = gather(gather(bits, outer), inner)  # [m, h, bytes]
    decode = jax.vmap(lambda row, place: opened(codec, row, q.size, place))
    means = jax.vmap(decode)(bits, last).reshape(m, -1)[:, : s.size]
    return Lossy(means.ravel()[: x.size], lost.ravel()[: x.size])


def compressed_two_level_wire_bytes(
    size: int, axis_sizes: tuple[int, int], codec: Codec
) -> int:
    """Bytes that each worker sends on both axes together.

    Args:
      size: number of elements d.
      axis_sizes: number of hosts h and of devices per host m.
      codec: a codec whose payload of c elements takes P(c) bytes.

    Returns:
      (m - 1) (P(c) + h P(p)) + 2 (h - 1) P(p).
    """
    hosts, devices = axis_sizes
    chunk = -(-size // devices)
    piece = message_bytes(codec, -(-chunk // hosts))
    inside = (devices - 1) * (message_bytes(codec, chunk) + hosts * piece)
    return inside + 2 * (hosts - 1) * piece
