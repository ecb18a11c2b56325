"""What compressed exchanges have in common: a codec, and one message per hop.

A lossy exchange returns the mean that everybody receives, and on each worker what its
sends have lost. The law of them all, whatever is encoded, how often and by whom:

    (1/n) sum_i x_i = mean + (1/n) sum_i lost_i

so that a worker that adds `lost` to its next array makes up for the error (error
feedback).
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axes_of
from relaxjax.collectives.wire._messages import from_wire, nothing_to_send, to_wire


class Codec(NamedTuple):
    """A compressor of flat float32 arrays, as the exchanges use it.

    Attributes:
      encode: `encode(x, place) -> payload`, a pytree whose shapes depend on the size
        of x alone. `place`, uint32[], tells the chunks and stages of one exchange
        apart, for codecs that draw at random: sender and receiver pass the same.
      decode: `decode(payload, size, place) -> float32[size]`.
      outward: makes the codec for the next outer axis: there the workers of the inner
        axis hold equal arrays, and must draw the same; None: it is this codec.
    """

    encode: Callable[[jax.Array, jax.Array], Any]
    decode: Callable[[Any, int, jax.Array], jax.Array]
    outward: Callable[[], "Codec"] | None = None


class Lossy(NamedTuple):
    """Result of a compressed exchange.

    Attributes:
      mean: float32[d], the same bits on all workers.
      lost: float32[d], what this worker's sends have lost.
    """

    mean: jax.Array
    lost: jax.Array


class WireMessage(NamedTuple):
    """A payload as it travels, and as the sender itself decodes it.

    Attributes:
      bits: the payload in one array.
      payload: the payload behind a barrier: if the compiler saw the encoding from the
        decoding, it might remove both, and the loss with them.
    """

    bits: jax.Array
    payload: Any


def message(codec: Codec, x: jax.Array, place: jax.Array) -> WireMessage:
    """Encodes `x` for the wire; several leaves travel as bytes, in one array."""
    payload = lax.optimization_barrier(codec.encode(x, place))
    leaves = [to_wire(leaf) for leaf in jax.tree.leaves(payload)]
    if len(leaves) > 1:
        leaves = [lax.bitcast_convert_type(leaf, jnp.uint8) for leaf in leaves]
    bits = [leaf.ravel() for leaf in leaves]
    return WireMessage(jnp.concatenate(bits) if len(bits) > 1 else bits[0], payload)


def opened(codec: Codec, bits: jax.Array, size: int, place: jax.Array) -> jax.Array:
    """Decodes the bits that arrived for an array of `size` elements."""
    return codec.decode(_unpacked(bits, payload_of(codec, size)), size, place)


def payload_of(codec: Codec, size: int) -> Any:
    """The payload of `size` elements, as shapes and dtypes."""
    x = jax.ShapeDtypeStruct((size,), jnp.float32)
    return jax.eval_shape(codec.encode, x, jax.ShapeDtypeStruct((), jnp.uint32))


def message_bytes(codec: Codec, size: int) -> int:
    """Bytes of the message for `size` elements."""
    leaves = jax.tree.leaves(payload_of(codec, size))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def chunked_bytes(codec: Codec, size: int, axis_size: int) -> int:
    """Two rounds in which each other worker gets a chunk: 2 (n - 1) P(ceil(d / n))."""
    return 2 * (axis_size - 1) * message_bytes(codec, -(-size // axis_size))


def places(first: int, count: int) -> jax.Array:
    """uint32[count]: first, first + 1, ..., the places of as many chunks."""
    return jnp.arange(first, first + count, dtype=jnp.uint32)


def lossless(x: jax.Array, axis_name: AxisName) -> Lossy:
    """The result for a worker that is alone on its axes, or for an empty array."""
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
    """`one_axis(codec, x, name, level)` over all axes, level 0 being the inner one."""
    mean, lost = x, jnp.zeros_like(x)
    for level, name in enumerate(reversed(axes_of(axis_name))):
        if lax.axis_size(name) == 1 or x.size == 0:
            mean, more = lossless(mean, name)
        else:
            mean, more = one_axis(codec, mean, name, level)
        lost = lost + more
        codec = codec.outward() if codec.outward else codec
    return Lossy(mean, lost)


def _unpacked(bits: jax.Array, like: Any) -> Any:
    """The payload in the bits of a message; `like` has its shapes and dtypes."""
    shapes, tree = jax.tree.flatten(like)
    if len(shapes) == 1:
        leaves = [from_wire(bits.reshape(shapes[0].shape), shapes[0].dtype)]
    else:
        widths = [x.size * x.dtype.itemsize for x in shapes]
        parts = jnp.split(bits, list(itertools.accumulate(widths))[:-1])
        leaves = [_from_bytes(*pair) for pair in zip(parts, shapes, strict=True)]
    return jax.tree.unflatten(tree, leaves)


def _from_bytes(bits: jax.Array, like: jax.ShapeDtypeStruct) -> jax.Array:
    width = like.dtype.itemsize
    shape = like.shape if width == 1 else (*like.shape, width)
    return from_wire(bits.reshape(shape), like.dtype)
