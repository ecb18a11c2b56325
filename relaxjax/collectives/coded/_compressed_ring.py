"""Compressed ring: every hop decodes, adds, and encodes again.

Source: the ring of `relaxjax.collectives.exact._ring`, with low precision on each hop,
as in INTELLECT-1's int8 ring (Jaghouar et al. 2024).

With n workers, chunks of c = ceil(d / n) elements, and D the decoding of C:

    reduce-scatter, s = 0 .. n-2:  p_i <- D(C(p_{i-1})) + x_i[chunk i - s - 2] / n
    all-gather:                    C(p_i), encoded once by worker i, to everybody

Worker i encodes a part of each chunk once; at that chunk, `lost_i` is n times the loss
of this encoding. Cost: 2 (n - 1) P(c) bytes per worker and n lossy stages: a partial
mean is rounded at each hop.
"""

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axis_size, tracks_vma
from relaxjax.collectives.wire._messages import chunks_of, gather
from relaxjax.collectives.wire._payload import (
    Codec,
    Lossy,
    axis_by_axis,
    chunked_bytes,
    message,
    opened,
    places,
)


def compressed_ring(x: jax.Array, axis_name: AxisName, codec: Codec) -> Lossy:
    """The mean of `x` over the workers, encoded anew on each hop around a ring.

    Args:
      x: float32[d].
      axis_name: the axis; of a tuple (outer, inner), the inner ring runs first.
      codec: the encoder and decoder.

    Raises:
      NameError: outside the axis.
    """
    axis_size(axis_name, "compressed_ring")
    return axis_by_axis(x, axis_name, codec, _one_ring)


def compressed_ring_wire_bytes(size: int, axis_size: int, codec: Codec) -> int:
    """Bytes that each worker sends over one axis: 2 (n - 1) P(ceil(d / n)).

    Args:
      size: number of elements d.
      axis_size: number of workers n.
      codec: a codec whose payload of a chunk of c elements takes P(c) bytes.
    """
    return chunked_bytes(codec, size, axis_size)


def _one_ring(codec: Codec, x: jax.Array, name: str, level: int) -> Lossy:
    n, i = lax.axis_size(name), lax.axis_index(name)
    onwards = [(k, (k + 1) % n) for k in range(n)]
    chunks = chunks_of(x, n)
    c = chunks.shape[1]
    # Hop s encodes chunk i - s - 1; sender and receiver know both numbers.
    hops = places(n * n * level, n * n).reshape(n, n)
    losses = []

    partial = lax.dynamic_index_in_dim(chunks, (i - 1) % n, keepdims=False) / n
    for s in range(n - 1):
        k = (i - s - 1) % n
        bits, payload = message(codec, partial, hops[s, k])
        losses.append(partial - codec.decode(payload, c, hops[s, k]))
        bits = lax.ppermute(bits, name, onwards)
        k = (i - s - 2) % n
        mine = lax.dynamic_index_in_dim(chunks, k, keepdims=False)
        partial = opened(codec, bits, c, hops[s, k]) + mine / n

    bits, payload = message(codec, partial, hops[n - 1, i])
    losses.append(partial - codec.decode(payload, c, hops[n - 1, i]))
    bits = _gathered(bits, name, onwards)  # row k: the mean of chunk k, from worker k
    means = jax.vmap(lambda row, place: opened(codec, row, c, place))(bits, hops[-1])
    # losses[s] belongs to chunk i - s - 1, so chunk k is at place (i - 1 - k) mod n.
    lost = n * jnp.stack(losses)[(i - 1 - jnp.arange(n)) % n]
    return Lossy(means.ravel()[: x.size], lost.ravel()[: x.size])


def _gathered(bits: jax.Array, name: str, onwards: list[tuple[int, int]]) -> jax.Array:
    """Everybody's bits, passed on around the ring."""
    if tracks_vma(name):  # only this form is known to be equal on all workers
        return gather(bits, name)
    n, i = lax.axis_size(name), lax.axis_index(name)
    rows = [bits]
    for _ in range(n - 1):
        rows.append(lax.ppermute(rows[-1], name, onwards))
    return jnp.stack(rows)[(i - jnp.arange(n)) % n]
