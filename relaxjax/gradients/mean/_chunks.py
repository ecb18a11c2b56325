"""One chunk of every worker's array at each worker, and back: what two shots carry.

    rows     [n, c]: worker i has chunk i of all n workers' x, c = ceil(d / n)
    join     every worker has what was made of all chunks, like x

Several axes are one after the other. Dense codes go over one axis: rows are decoded, a
worker's own is as it is, and what was made of them is encoded once more.

Cost: (m - 1) / m of x there and back along each axis of m workers: over one axis, the
2 (n - 1) c elements of an all-reduce, or so many of a code's payloads of c elements.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axes_of
from relaxjax.collectives import (
    Codec,
    chunks_of,
    distribute,
    from_wire,
    gather,
    gather_all,
    message,
    opened,
    places,
    to_wire,
)


class Shots(NamedTuple):
    """Both ways of a flat array.

    Attributes:
      rows: `rows(x)`, one chunk of all workers, [n, c].
      join: `join(chunk, x)`, all chunks, like x.
    """

    rows: Callable[[jax.Array], jax.Array]
    join: Callable[[jax.Array, jax.Array], jax.Array]


def exact_shots(axis_name: AxisName) -> Shots:
    """Arrays as they are, in 16 bits where they have 16."""
    axes = axes_of(axis_name)

    def rows(x: jax.Array) -> jax.Array:
        sizes = [lax.axis_size(name) for name in axes]
        flat = to_wire(chunks_of(x, math.prod(sizes)))
        chunks = flat.reshape(*sizes, flat.shape[1])
        for place, name in enumerate(axes):
            along = jnp.moveaxis(chunks, place, 0)
            chunks = jnp.moveaxis(distribute(along, name), 0, place)
        return from_wire(chunks.reshape(flat.shape), x.dtype)

    def join(chunk: jax.Array, x: jax.Array) -> jax.Array:
        return gather_all(chunk.astype(x.dtype), axis_name).ravel()[: x.size]

    return Shots(rows, join)


def coded_shots(name: str, codec: Codec) -> Shots:
    """float32[d], by a codec."""

    def rows(x: jax.Array) -> jax.Array:
        n, i = lax.axis_size(name), lax.axis_index(name)
        chunks, up = chunks_of(x, n), places(0, n)
        sent = jax.vmap(lambda chunk, place: message(codec, chunk, place).bits)
        received = distribute(sent(chunks, up), name)
        decode = jax.vmap(lambda bits: opened(codec, bits, chunks.shape[1], up[i]))
        return decode(received).at[i].set(chunks[i])

    def join(chunk: jax.Array, x: jax.Array) -> jax.Array:
        n, i = lax.axis_size(name), lax.axis_index(name)
        down = places(n, n)
        sent = message(codec, chunk, down[i])
        decode = jax.vmap(lambda bits, place: opened(codec, bits, chunk.size, place))
        return decode(gather(sent.bits, name), down).ravel()[: x.size]

    return Shots(rows, join)
