"""Recursive halving and doubling: an all-reduce in about 2 log2(n) messages.

Source: Rabenseifner 2004; Thakur, Rabenseifner and Gropp, "Optimization of collective
communication operations in MPICH", 2005, section 4.4.

With n workers, p = 2^floor(log2 n) of them in the core, and x of d elements, cut into p
chunks of c = ceil(d / p) elements:

    fold, if n > p:         x_{k-p} <- x_{k-p} + x_k                (k = p .. n-1)
    for D = p/2, p/4 .. 1:  worker i and worker i xor D split the chunks they hold into
                            two halves; each sends one and adds to the other what it
                            receives; worker i ends with the sum of chunk i
    for D = 1, 2 .. p/2:    worker i and worker i xor D exchange all sums that they have
    unfold, if n > p:       x_k <- x_{k-p}

Cost: 2 log2(p) messages and 2 (p - 1) c itemsize bytes per worker of the core, like the
ring with fewer messages; if n > p, two rounds and d itemsize bytes more.
"""

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, tracks_vma
from relaxjax.collectives.wire._messages import (
    Pairs,
    back,
    chunks_of,
    for_each_axis,
    gather,
    is_target,
    send,
)
from relaxjax.collectives.wire._rounding import add_rounding_once


def halving_doubling_all_reduce(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """Sums `x` over the workers of an axis by recursive halving and doubling.

    All workers receive the same bits. 16-bit floats travel as 16 bits and are added in
    float32, rounded once per message received, so ceil(log2 n) times. Under
    `check_vma=True` one all-gather takes the place of the doubling and unfolding:
    (n - 1) c itemsize bytes.

    Args:
      x: a numeric array of any shape, the same on all workers; it may be 0-d or empty.
      axis_name: the axis; of a tuple (outer, inner), the inner one runs first.

    Returns:
      The sum, with the shape and dtype of `x`.

    Raises:
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import halving_doubling_all_reduce
      >>> x = jnp.arange(12.0).reshape(4, 3)  # a row for each of four workers
      >>> total = jax.vmap(
      ...     lambda x: halving_doubling_all_reduce(x, "data"), axis_name="data")(x)
      >>> print(total[2])
      [18. 22. 26.]
    """
    return for_each_axis(x, axis_name, "halving_doubling_all_reduce", _one_axis)


def halving_doubling_wire_bytes(
    x: jax.Array | jax.ShapeDtypeStruct, axis_size: int
) -> int:
    """Bytes that the busiest worker sends in one `halving_doubling_all_reduce`.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      axis_size: number of workers n.

    Returns:
      2 (p - 1) ceil(d / p) itemsize, with p the largest power of two up to n; if n > p,
      d itemsize more.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import halving_doubling_wire_bytes
      >>> x = jax.ShapeDtypeStruct((10,), jnp.float32)
      >>> halving_doubling_wire_bytes(x, 4), halving_doubling_wire_bytes(x, 5)
      (72, 112)
    """
    core, fold = _core_of(axis_size)
    unfold = x.size if fold else 0
    return (2 * (core - 1) * -(-x.size // core) + unfold) * x.dtype.itemsize


def _core_of(n: int) -> tuple[int, Pairs]:
    """The power of two workers of the core, and who folds into whom."""
    core = 1 << (n.bit_length() - 1)
    return core, [(k, k - core) for k in range(core, n)]


def _exchanges(core: int) -> list[tuple[int, Pairs]]:
    """The distances D = 1, 2, 4 .. < core, and the pairs of i and i xor D."""
    distances = [1 << level for level in range(core.bit_length() - 1)]
    return [(D, [(k, k ^ D) for k in range(core)]) for D in distances]


def _one_axis(x: jax.Array, name: str) -> jax.Array:
    core, fold = _core_of(lax.axis_size(name))
    flat = x.ravel()
    if fold:
        folded = add_rounding_once(flat, send(flat, name, fold))
        flat = jnp.where(is_target(name, fold), folded, flat)
    chunks = chunks_of(flat, core)
    chunk = _halve(chunks, name)
    if tracks_vma(name):  # only this form is known to be equal on all workers
        return gather(chunk, name)[:core].ravel()[: x.size].reshape(x.shape)
    flat = _double(chunk, chunks, name).ravel()[: x.size]
    if fold:
        unfolded = send(flat, name, back(fold))
        flat = jnp.where(is_target(name, back(fold)), unfolded, flat)
    return flat.reshape(x.shape)


def _halve(chunks: jax.Array, name: str) -> jax.Array:
    """Chunk i of the sum, at worker i."""
    i = lax.axis_index(name)
    for distance, partners in reversed(_exchanges(len(chunks))):
        halves = chunks.reshape(2, distance, -1)
        mine = (i // distance) % 2
        keep = lax.dynamic_index_in_dim(halves, mine, keepdims=False)
        give = lax.dynamic_index_in_dim(halves, 1 - mine, keepdims=False)
        chunks = add_rounding_once(keep, send(give, name, partners))
    return chunks[0]


def _double(chunk: jax.Array, memory: jax.Array, name: str) -> jax.Array:
    """All summed chunks, in the memory of the local ones, which are all replaced."""
    i = lax.axis_index(name)
    chunks = lax.dynamic_update_index_in_dim(memory, chunk, i, 0)
    for distance, partners in _exchanges(len(memory)):
        start = i // distance * distance  # the first chunk that is summed here
        mine = lax.dynamic_slice_in_dim(chunks, start, distance)
        theirs = send(mine, name, partners)
        chunks = lax.dynamic_update_slice_in_dim(chunks, theirs, start ^ distance, 0)
    return chunks
