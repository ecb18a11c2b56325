"""Bidirectional ring all-reduce: two halves go round in opposite directions.

Source: the two-way ring of torus networks, as in Jain and Sabharwal, "Optimal bucket
algorithms for large MPI collectives on torus interconnects", 2010. A link that carries
both directions at once is then fully used.

With n workers, and x cut into a first half of ceil(d / 2) elements and a second one:

    y[first half]  <- ring all-reduce, each worker sends to the next one
    y[second half] <- ring all-reduce, each worker sends to the one before

Cost: 4 (n - 1) messages per worker, two at a time, of a chunk of a half each; the bytes
are those of the ring, up to padding.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from relaxjax._core._axis import AxisName
from relaxjax.collectives.exact._ring import one_ring, ring_wire_bytes
from relaxjax.collectives.wire._messages import for_each_axis


def bidirectional_ring_all_reduce(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """Sums `x` over the workers of an axis by two rings in opposite directions.

    All workers receive the same bits. 16-bit floats travel as 16 bits and are added in
    float32, rounded once per hop (n - 1 roundings).

    Args:
      x: a numeric array of any shape, the same on all workers; it may be 0-d or empty.
      axis_name: the axis; of a tuple (outer, inner), the inner rings run first.

    Returns:
      The sum, with the shape and dtype of `x`.

    Raises:
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import bidirectional_ring_all_reduce
      >>> x = jnp.arange(12.0).reshape(4, 3)  # a row for each of four workers
      >>> total = jax.vmap(
      ...     lambda x: bidirectional_ring_all_reduce(x, "data"), axis_name="data")(x)
      >>> print(total[2])
      [18. 22. 26.]
    """
    return for_each_axis(x, axis_name, "bidirectional_ring_all_reduce", two_rings)


def bidirectional_ring_wire_bytes(
    x: jax.Array | jax.ShapeDtypeStruct, axis_size: int
) -> int:
    """Bytes that each worker sends in one `bidirectional_ring_all_reduce`.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      axis_size: number of workers n.

    Returns:
      2 (n - 1) (ceil(a / n) + ceil(b / n)) itemsize, with halves of a = ceil(d / 2)
      and b = floor(d / 2) elements.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import bidirectional_ring_wire_bytes
      >>> bidirectional_ring_wire_bytes(jax.ShapeDtypeStruct((16,), jnp.float32), 4)
      96
    """
    sizes = (-(-x.size // 2), x.size // 2)
    halves = [jax.ShapeDtypeStruct((size,), x.dtype) for size in sizes]
    return sum(ring_wire_bytes(half, axis_size) for half in halves)


def two_rings(
    x: jax.Array, name: str, ring: Callable[..., jax.Array] = one_ring
) -> jax.Array:
    """Half of `x` in one ring, and half in one that goes the other way."""
    first, second = jnp.split(x.ravel(), [-(-x.size // 2)])
    halves = [ring(first, name), ring(second, name, step=-1)]
    return jnp.concatenate(halves).reshape(x.shape)
