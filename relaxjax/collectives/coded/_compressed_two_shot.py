"""Compressed two-shot: scatter the encoded chunks, reduce, gather the encoded means.

Source: the ScatterReduce of BAGUA (Gan et al. 2021, C_LP_S); with losses returned to
their senders, DoubleSqueeze (Tang et al. 2019).

With n workers and x cut into n chunks of c = ceil(d / n) elements, worker i:

    scatter (all-to-all):  receives C(x_j[chunk i]) of every other worker j
    reduce:                q_i = (x_i[chunk i] + sum_{j != i} D(C(x_j[chunk i]))) / n
    gather (all-gather):   receives C(q_0), .., C(q_{n-1});  mean = D of them all

What stays is not compressed: worker i's own chunk enters q_i as it is. So its place in
`lost_i` is free for the loss of the second shot, n (q_i - D(C(q_i))): the residuals of
the worker and of the server share one array.

Two lossy stages. Cost: 2 (n - 1) P(c) bytes per worker.
"""

import jax
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax.collectives.wire._messages import chunks_of, distribute, gather
from relaxjax.collectives.wire._payload import (
    Codec,
    Lossy,
    axis_by_axis,
    chunked_bytes,
    message,
    opened,
    places,
)


def compressed_two_shot(x: jax.Array, axis_name: AxisName, codec: Codec) -> Lossy:
    """The mean of `x` over the workers, compressed on the way to and from the servers.

    Args:
      x: float32[d].
      axis_name: the axis; of a tuple (outer, inner), the inner one runs first, so that
        there are four lossy stages.
      codec: the encoder and decoder.

    Raises:
      NameError: outside the axis.
    """
    axis_size(axis_name, "compressed_two_shot")
    return axis_by_axis(x, axis_name, codec, _over_one_axis)


def compressed_two_shot_wire_bytes(size: int, axis_size: int, codec: Codec) -> int:
    """Bytes that each worker sends over one axis: 2 (n - 1) P(ceil(d / n)).

    Args:
      size: number of elements d.
      axis_size: number of workers n.
      codec: a codec whose payload of a chunk of c elements takes P(c) bytes.
    """
    return chunked_bytes(codec, size, axis_size)


def scattered(
    codec: Codec, chunks: jax.Array, name: str, up: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The first shot of `chunks` [n, c], whose places are `up`: the mean of one, [c].

    Worker i gets the mean of chunk i. Also returns what its payloads have lost, [n, c];
    its own chunk does not travel, and its row is free for the loss of the server.
    """
    (n, c), i = chunks.shape, lax.axis_index(name)
    sent = jax.vmap(lambda chunk, place: message(codec, chunk, place))(chunks, up)
    received = distribute(sent.bits, name)
    each = jax.vmap(lambda bits: opened(codec, bits, c, up[i]))(received)
    mine = lax.dynamic_index_in_dim(chunks, i, keepdims=False)
    mean = lax.dynamic_update_index_in_dim(each, mine, i, 0).sum(axis=0) / n
    decode = jax.vmap(lambda payload, place: codec.decode(payload, c, place))
    return mean, chunks - decode(sent.payload, up)


def _over_one_axis(codec: Codec, x: jax.Array, name: str, level: int) -> Lossy:
    n, i = lax.axis_size(name), lax.axis_index(name)
    chunks = chunks_of(x, n)
    c = chunks.shape[1]
    up, down = places(2 * n * level, n), places(2 * n * level + n, n)

    q, lost = scattered(codec, chunks, name, up)
    bits, payload = message(codec, q, down[i])
    by_server = n * (q - codec.decode(payload, c, down[i]))
    lost = lax.dynamic_update_index_in_dim(lost, by_server, i, 0)

    decode = jax.vmap(lambda row, place: opened(codec, row, c, place))
    means = decode(gather(bits, name), down)
    return Lossy(means.ravel()[: x.size], lost.ravel()[: x.size])
