"""What compressed exchanges have in common: a codec, and one message per hop.

A lossy exchange returns the mean that everybody receives, and on each worker what its
sends have lost. The law of them all, whatever is encoded, how often and by whom:

    (1/n) sum_i x_i = mean + (1/n) sum_i lost_i

so that whoever adds `lost` to its next array makes the error good (error feedback).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axes_of
from relaxjax.collectives._messages import nothing_to_send
from relaxjax.collectives._wire import to_wire


class Codec(NamedTuple):
    """A compressor of flat float32 arrays, as the exchanges use it.

    Attributes:
      encode: `encode(x, place) -> payload`, a pytree whose shapes depend on the size
        of x alone. `place`, uint32[], tells the chunks and stages of one exchange
        apart, for codecs that draw at random: sender and receiver pass the same.
      decode: `decode(payload, size, place) -> float32[size]`.
      outward: makes the codec for the next axis outwards, along which the workers of
        the inner axis hold the same array each, and so must draw the same; None: it is
        this codec.
    """

    encode: Callable[[jax.Array, jax.Array], Any]
    decode: Callable[[Any, int, jax.Array], jax.Array]
    outward: Callable[[], "Codec"] | None = None


class Lossy(NamedTuple):
    """Result of a compressed exchange.

    Attributes:
      mean: equal on all workers.
      lost: of this worker, in the shape of its array.
    """

    mean: jax.Array
    lost: jax.Array


class WireMessage(NamedTuple):
    """A payload as it travels, and what it says to the sender itself.

    Attributes:
      bits: one array.
      payload: behind a barrier: what the compiler knows of the encoding must not reach
        the decoding, or it may take both away and the loss with them.
    """

    bits: jax.Array
    payload: Any


def message(codec: Codec, x: jax.Array, place: jax.Array) -> WireMessage:
    """Encodes `x` for the wire."""
    payload = lax.optimization_barrier(codec.encode(x, place))
    return WireMessage(_as_one(payload), payload)


def opened(codec: Codec, bits: jax.Array, size: int, place: jax.Array) -> jax.Array:
    """Decodes what arrived of an array of `size` elements."""
    return codec.decode(_apart(bits, payload_of(codec, size)), size, place)


def payload_of(codec: Codec, size: int) -> Any:
    """Shapes of the payload of `size` elements."""
    x = jax.ShapeDtypeStruct((size,), jnp.float32)
    return jax.eval_shape(codec.encode, x, jax.ShapeDtypeStruct((), jnp.uint32))


def message_bytes(codec: Codec, size: int) -> int:
    """Bytes of the message of `size` elements."""
    leaves = jax.tree.leaves(payload_of(codec, size))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def chunked_bytes(codec: Codec, size: int, axis_size: int) -> int:
    """Bytes of two rounds of a chunk to each other worker: 2 (n - 1) P(ceil(d / n))."""
    if axis_size == 1:
        return 0
    return 2 * (axis_size - 1) * message_bytes(codec, -(-size // axis_size))


def places(first: int, count: int) -> jax.Array:
    """The numbers first, first + 1, ... of `count` chunks."""
    return jnp.arange(first, first + count, dtype=jnp.uint32)


def lossless(x: jax.Array, axis_name: AxisName) -> Lossy:
    """Of workers that are alone on their axes, or of an empty array."""
    lost = jnp.zeros_like(x)
    for name in axes_of(axis_name):
        x = nothing_to_send(x, name)
    return Lossy(x, lost)


def axis_by_axis(
    x: jax.Array,
    axis_name: AxisName,
    codec: Codec,
    one_axis: Callable[[Codec, jax.Array, str, int], Lossy],
) -> Lossy:
    """The mean over all axes, the inner one first.

    Args:
      x: float32[d].
      axis_name: the axis, or a tuple of axes.
      codec: of the inner axis.
      one_axis: from a codec, an array, the name of an axis and its number, from the
        inside.
    """
    mean, lost = x, jnp.zeros_like(x)
    for level, name in enumerate(reversed(axes_of(axis_name))):
        if lax.axis_size(name) == 1 or x.size == 0:
            mean, more = lossless(mean, name)
        else:
            mean, more = one_axis(codec, mean, name, level)
        lost = lost + more
        codec = codec.outward() if codec.outward else codec
    return Lossy(mean, lost)


def _as_one(payload: Any) -> jax.Array:
    """All leaves in one array, of bytes if there are several."""
    leaves = [to_wire(leaf) for leaf in jax.tree.leaves(payload)]
    if len(leaves) == 1:
        return leaves[0].ravel()
    return jnp.concatenate([_bytes(leaf).ravel() for leaf in leaves])


def _apart(bits: jax.Array, like: Any) -> Any:
    """Inverse of `_as_one`, for a payload of the shapes `like`."""
    leaves, tree = jax.tree.flatten(like)
    if len(leaves) == 1:
        (only,) = leaves
        return jax.tree.unflatten(tree, [_cast(bits.reshape(only.shape), only.dtype)])
    found, start = [], 0
    for leaf in leaves:
        stop = start + math.prod(leaf.shape) * leaf.dtype.itemsize
        found.append(_from_bytes(lax.slice(bits, (start,), (stop,)), leaf))
        start = stop
    return jax.tree.unflatten(tree, found)


def _bytes(x: jax.Array) -> jax.Array:
    return x if x.dtype == jnp.uint8 else lax.bitcast_convert_type(x, jnp.uint8)


def _from_bytes(bits: jax.Array, like: jax.ShapeDtypeStruct) -> jax.Array:
    width = like.dtype.itemsize
    shape = like.shape if width == 1 else (*like.shape, width)
    return _cast(bits.reshape(shape), like.dtype)


def _cast(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)
