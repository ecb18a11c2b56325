"""Ring all-reduce: a reduce-scatter, then an all-gather, around a ring.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", 2009; in deep learning by Gibiansky 2017 and Horovod (Sergeev and Del
Balso 2018).

With n workers and x of d elements, cut into chunks of c = ceil(d / n) elements:

    reduce-scatter, s = 0 .. n-2:  p_i <- p_{i-1} + x_i[chunk i - s - 2]
    (p_i starts as x_i[chunk i - 1], and ends as the sum over workers of chunk i)
    all-gather, s = 0 .. n-2:      q_i <- q_{i-1}, which is chunk i - s - 1
    (q_i starts as p_i)

Cost: 2 (n - 1) messages and 2 (n - 1) c itemsize bytes per worker; the least possible
number of bytes is 2 (n - 1) d / n itemsize.
"""

from collections.abc import Callable

import jax
from jax import lax

from relaxjax._core._axis import AxisName, tracks_vma
from relaxjax.collectives.wire._messages import (
    chunks_of,
    for_each_axis,
    gather,
    nothing_to_send,
    send,
)
from relaxjax.collectives.wire._rounding import add_rounding_once

Add = Callable[[jax.Array, int, jax.Array], jax.Array]


def ring_all_reduce(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """Sums `x` over the workers of an axis by passing chunks around a ring.

    All workers receive the same bits. 16-bit floats travel as 16 bits and are added in
    float32, rounded once per hop (n - 1 roundings).

    Args:
      x: a numeric array of any shape, the same on all workers; it may be 0-d or empty.
      axis_name: the axis; of a tuple (outer, inner), the inner ring runs first.

    Returns:
      The sum, with the shape and dtype of `x`.

    Raises:
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import ring_all_reduce
      >>> x = jnp.arange(12.0).reshape(4, 3)  # a row for each of four workers
      >>> total = jax.vmap(lambda x: ring_all_reduce(x, "data"), axis_name="data")(x)
      >>> print(total[2])
      [18. 22. 26.]
    """
    return for_each_axis(x, axis_name, "ring_all_reduce", one_ring)


def ring_wire_bytes(x: jax.Array | jax.ShapeDtypeStruct, axis_size: int) -> int:
    """Bytes that each worker sends in one `ring_all_reduce` of an array like `x`.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      axis_size: number of workers n.

    Returns:
      2 (n - 1) ceil(d / n) itemsize.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import ring_wire_bytes
      >>> ring_wire_bytes(jax.ShapeDtypeStruct((10,), jnp.float32), 4)
      72
    """
    chunk = -(-x.size // axis_size)
    return 2 * (axis_size - 1) * chunk * x.dtype.itemsize


def _add(total: jax.Array, count: int, x: jax.Array) -> jax.Array:
    del count
    return add_rounding_once(total, x)


def one_ring(x: jax.Array, name: str, step: int = 1, add: Add = _add) -> jax.Array:
    """The ring over one axis; `step` -1 goes round it the other way.

    `add(so_far, count, x)` brings `x` to what `count` workers have brought together.
    """
    if x.size == 0:  # half of a single element
        return nothing_to_send(x, name)
    n, i = lax.axis_size(name), lax.axis_index(name)
    onwards = [(k, (k + step) % n) for k in range(n)]
    chunks = chunks_of(x, n)

    def chunk(k):
        return lax.dynamic_index_in_dim(chunks, k % n, keepdims=False)

    p = chunk(i - step)
    for s in range(n - 1):
        p = add(send(p, name, onwards), s + 1, chunk(i - step * (s + 2)))

    if tracks_vma(name):  # only this form is known to be equal on all workers
        summed = gather(p, name)
    else:
        # In the memory of the chunks, which are all replaced.
        summed = lax.dynamic_update_index_in_dim(chunks, p, i, 0)
        for s in range(n - 1):
            p = send(p, name, onwards)
            k = (i - step * (s + 1)) % n
            summed = lax.dynamic_update_index_in_dim(summed, p, k, 0)
    return summed.ravel()[: x.size].reshape(x.shape)
