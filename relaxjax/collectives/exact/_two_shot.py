"""Two-shot all-reduce: scatter the chunks, reduce each at one worker, gather the sums.

Source: the direct form of Rabenseifner's reduce-scatter and all-gather; with low
precision in both shots, the ScatterReduce of BAGUA (Gan et al. 2021).

With n workers and x cut into n chunks of c = ceil(d / n) elements:

    scatter (all-to-all):  worker i receives chunk i of every worker
    reduce:                s_i = x_0[chunk i] + x_1[chunk i] + .. + x_{n-1}[chunk i]
    gather (all-gather):   every worker receives s_0, .., s_{n-1}

Cost: 2 (n - 1) messages in two rounds and 2 (n - 1) c itemsize bytes per worker: the
ring's bytes in two latencies, where every worker can reach every other one.
"""

import jax
from jax import lax

from relaxjax._core._axis import AxisName
from relaxjax.collectives.wire._messages import (
    chunks_of,
    distribute,
    for_each_axis,
    gather,
)
from relaxjax.collectives.wire._rounding import sum_rounding_once


def two_shot_all_reduce(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """Sums `x` over the workers of an axis: all-to-all, reduce, all-gather.

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
      >>> from relaxjax.collectives import two_shot_all_reduce
      >>> x = jnp.arange(12.0).reshape(4, 3)  # a row for each of four workers
      >>> total = jax.vmap(
      ...     lambda x: two_shot_all_reduce(x, "data"), axis_name="data")(x)
      >>> print(total[2])
      [18. 22. 26.]
    """

    def one_axis(x: jax.Array, name: str) -> jax.Array:
        return gather_chunks(scatter_reduce(x, name), name, x)

    return for_each_axis(x, axis_name, "two_shot_all_reduce", one_axis)


def two_shot_wire_bytes(x: jax.Array | jax.ShapeDtypeStruct, axis_size: int) -> int:
    """Bytes that each worker sends in one `two_shot_all_reduce` of an array like `x`.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      axis_size: number of workers n.

    Returns:
      2 (n - 1) ceil(d / n) itemsize.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import two_shot_wire_bytes
      >>> two_shot_wire_bytes(jax.ShapeDtypeStruct((10,), jnp.float32), 4)
      72
    """
    chunk = -(-x.size // axis_size)
    return 2 * (axis_size - 1) * chunk * x.dtype.itemsize


def scatter_reduce(x: jax.Array, name: str) -> jax.Array:
    """The first shot: chunk i of the sum, at worker i, rounded once."""
    return sum_rounding_once(chunk_of_all(x, name))


def chunk_of_all(x: jax.Array, name: str) -> jax.Array:
    """Chunk i of every worker, at worker i."""
    return distribute(chunks_of(x, lax.axis_size(name)), name)


def gather_chunks(chunk: jax.Array, name: str, like: jax.Array) -> jax.Array:
    """The second shot: the chunks of all workers, in the shape of `like`."""
    return gather(chunk, name).ravel()[: like.size].reshape(like.shape)
