"""Tree all-reduce: sums go up a binary tree of additions, the result comes down it.

Source: the binomial tree of MPI_Reduce and MPI_Bcast; Thakur, Rabenseifner and Gropp,
"Optimization of collective communication operations in MPICH", 2005, sections 4.2, 4.4.

With n workers and x of d elements:

    up, for D = 1, 2, 4 .. < n:      x_i <- x_i + x_{i+D}   (2 D divides i, i + D < n)
    down, for the same D backwards:  x_{i+D} <- x_i

Cost: 2 ceil(log2 n) messages, one after the other, of d elements each; worker 0, the
busiest, sends ceil(log2 n) of them. Few messages, more bytes: for small arrays.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, tracks_vma
from relaxjax.collectives.wire._messages import (
    Pairs,
    back,
    copy_known_equal,
    for_each_axis,
    is_target,
    send,
)
from relaxjax.collectives.wire._rounding import add_rounding_once


def tree_all_reduce(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """Sums `x` over the workers of an axis, up a binary tree and down again.

    All workers receive the same bits. 16-bit floats travel as 16 bits and are added in
    float32, rounded once per level, so ceil(log2 n) times. Under `check_vma=True` a sum
    of the root's bits and of zeros takes the place of the way down:
    2 (n - 1) ceil(d / n) itemsize bytes.

    Args:
      x: a numeric array of any shape, the same on all workers; it may be 0-d or empty.
      axis_name: the axis; of a tuple (outer, inner), the inner trees run first.

    Returns:
      The sum, with the shape and dtype of `x`.

    Raises:
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import tree_all_reduce
      >>> x = jnp.arange(12.0).reshape(4, 3)  # a row for each of four workers
      >>> total = jax.vmap(lambda x: tree_all_reduce(x, "data"), axis_name="data")(x)
      >>> print(total[2])
      [18. 22. 26.]
    """
    one_axis = partial(one_tree, add=add_rounding_once)
    return for_each_axis(x, axis_name, "tree_all_reduce", one_axis)


def tree_wire_bytes(x: jax.Array | jax.ShapeDtypeStruct, axis_size: int) -> int:
    """Bytes that the busiest worker, the root, sends in one `tree_all_reduce`.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      axis_size: number of workers n.

    Returns:
      ceil(log2 n) d itemsize.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import tree_wire_bytes
      >>> tree_wire_bytes(jax.ShapeDtypeStruct((10,), jnp.float32), 5)
      120
    """
    return len(_levels(axis_size)) * x.size * x.dtype.itemsize


def _levels(n: int) -> list[Pairs]:
    """Who sends to whom on the way up, level by level."""
    distances = [1 << level for level in range((n - 1).bit_length())]
    return [[(i + D, i) for i in range(0, n - D, 2 * D)] for D in distances]


def one_tree(
    x: jax.Array, name: str, add: Callable[[jax.Array, jax.Array], jax.Array]
) -> jax.Array:
    """The tree over one axis, where `add` may be any operation on two arrays.

    Every combination is computed at one worker, and the last one is copied.
    """
    levels = _levels(lax.axis_size(name))
    for up in levels:
        added = add(x, send(x, name, up))
        x = jnp.where(is_target(name, up), added, x)
    if tracks_vma(name):  # only this form is known to be equal on all workers
        return copy_known_equal(x, name, source=0)
    for up in reversed(levels):
        down = back(up)
        x = jnp.where(is_target(name, down), send(x, name, down), x)
    return x
