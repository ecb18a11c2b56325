"""One-shot all-reduce: everybody sends everything to everybody, and all of them add.

Source: the direct (all-to-all broadcast) exchange; the "one-shot" kernel of NCCL-like
libraries for small messages.

With n workers and x of d elements:

    gather (all-gather):  every worker receives x_0, .., x_{n-1}
    reduce:               y = x_0 + x_1 + .. + x_{n-1}, in this order on every worker

Cost: n - 1 messages in one round and (n - 1) d itemsize bytes per worker: one latency,
n / 2 times the bytes of the ring. For small arrays, and for payloads that cannot be
added while they travel.
"""

import jax

from relaxjax._core._axis import AxisName
from relaxjax.collectives.wire._messages import for_each_axis, gather
from relaxjax.collectives.wire._rounding import sum_rounding_once


def one_shot_all_reduce(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """Sums `x` over the workers of an axis: all-gather, then add.

    All workers receive the same bits. 16-bit floats travel as 16 bits, are added in
    float32, and are rounded once.

    Args:
      x: a numeric array of any shape, the same on all workers; it may be 0-d or empty.
      axis_name: the axis; of a tuple (outer, inner), the inner one runs first.

    Returns:
      The sum, with the shape and dtype of `x`.

    Raises:
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import one_shot_all_reduce
      >>> x = jnp.arange(12.0).reshape(4, 3)  # a row for each of four workers
      >>> total = jax.vmap(
      ...     lambda x: one_shot_all_reduce(x, "data"), axis_name="data")(x)
      >>> print(total[2])
      [18. 22. 26.]
    """

    def one_axis(x: jax.Array, name: str) -> jax.Array:
        return sum_rounding_once(gather(x, name))

    return for_each_axis(x, axis_name, "one_shot_all_reduce", one_axis)


def one_shot_wire_bytes(x: jax.Array | jax.ShapeDtypeStruct, axis_size: int) -> int:
    """Bytes that each worker sends in one `one_shot_all_reduce` of an array like `x`.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      axis_size: number of workers n.

    Returns:
      (n - 1) d itemsize.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import one_shot_wire_bytes
      >>> one_shot_wire_bytes(jax.ShapeDtypeStruct((10,), jnp.float32), 4)
      120
    """
    return (axis_size - 1) * x.size * x.dtype.itemsize
