"""From the workers' models to one model, and how far apart they are."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._checks import is_any_traced
from relaxjax._core._extremes import extremes, largest
from relaxjax._core._tree import is_key, wide
from relaxjax._core.foreign._switches import unswitched
from relaxjax._core.foreign._together import meet, processes_of
from relaxjax._core.layouts._copies import all_copies, copied, untyped
from relaxjax.workers._worker_state import require_one_model, require_worker_state

_CALLED = (
    "call it, as each of them holds a part of the workers. Call it on every process, "
    "and write or print on one: not under `if jax.process_index() == 0:`"
)


def consensus(tree: Any) -> Any:
    """One model to evaluate or export: the workers' mean. All processes call it.

    Floating leaves are averaged (in float32 at least; equal values give exactly that
    value, but for the sign of a zero, and subnormal ones are 0 where the device flushes
    them); all others are worker 0's. Slices of params that lie sharded (`Shard`) are
    joined.

    Args:
      tree: worker state, each leaf [n, ...].

    Raises:
      ValueError: leaves have no leading axis in common, as in a tree of one device.
      RuntimeError: another process has not called it within half an hour.

    Returns:
      The tree without the worker axis; dtypes stay. On a mesh that has only workers'
      axes, the arrays lie on one device; otherwise they keep their other sharding, and
      inside of `jax.jit` lie where the compiler puts them.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> print(relaxjax.consensus({"w": jnp.array([[1.0, 2.0], [3.0, 2.0]])}))
      {'w': Array([2., 2.], dtype=float32)}
    """
    _require_all("consensus", tree)
    parts, structure = jax.tree.flatten(tree, is_leaf=is_sliced)
    leaves = [x for x in parts if not is_sliced(x)]
    rest = iter(_means(leaves) if is_any_traced(leaves) else _means_apart(leaves))
    models = [x.joined() if is_sliced(x) else next(rest) for x in parts]
    return jax.tree.unflatten(structure, models)


def _require_all(caller: str, tree: Any) -> None:
    """Refuses what is no worker state, and a process that calls alone."""
    require_worker_state(caller, tree, is_sliced)
    if not is_any_traced(tree):
        arrays = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]
        meet(caller, processes_of(arrays), _CALLED, arrays)


def at_mean(leaves: list[Any]) -> list[jax.Array]:
    """Leaves [n, ...] with `consensus` of each on every worker, lying as before."""

    def means(leaves: list[jax.Array]) -> list[jax.Array]:
        pairs = zip(_means(leaves), leaves, strict=True)
        return [jnp.broadcast_to(mean, x.shape) for mean, x in pairs]

    lie = [getattr(x, "sharding", None) for x in leaves]
    return jax.jit(means, out_shardings=lie)(leaves)


@unswitched()
def spread(tree: Any) -> float:
    """Largest absolute difference between two workers, over all elements and leaves.

    It is 0.0 exactly when all workers hold the same values, and NaN where one holds a
    NaN. Devices that flush subnormal numbers take them for 0; `require_replicas`
    compares bits. Of a leaf that the mesh's other axes do not shard, each device's copy
    counts. Complex numbers are compared by their real and imaginary parts. Typed PRNG
    keys, which differ on purpose, are left out. Of params that lie sharded (`Shard`),
    workers that hold the same slice are compared.

    Args:
      tree: worker state, each leaf [n, ...].

    Returns:
      A Python float, in the unit of the leaves.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> relaxjax.spread({"w": jnp.array([[1.0, 2.0], [3.0, 2.0]])})
      2.0
    """
    _require_all("spread", tree)
    leaves = [x for x in _models(tree) if not is_key(x) and x.size]
    if not leaves:
        return 0.0
    return float(np.max(_spreads(leaves, tuple(map(copied, leaves))), initial=0.0))


@unswitched()
def consensus_distance(tree: Any) -> float:
    """How far the models are from their mean: the root mean square over the workers.

    Source: Kong et al. 2021, with the norm over all elements of all floating leaves;
    other leaves are left out. Where params lie sharded (`Shard`), the slices of an
    island are one model.

    Args:
      tree: worker state, each leaf [n, ...].

    Returns:
      A Python float, in the unit of the leaves, computed in float32 at least.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> relaxjax.consensus_distance({"w": jnp.array([[1.0, 2.0], [3.0, 2.0]])})
      1.0
    """
    _require_all("consensus_distance", tree)
    leaves = [x for x in _models(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return float(jax.jit(distance_of)(leaves)) if leaves else 0.0


def distance_of(leaves: list[jax.Array]) -> jax.Array:
    """`consensus_distance` of floating leaves, as an array."""

    def square(x):
        y = x.astype(wide(x.dtype))
        y = jnp.where(y == y[:1], 0, y - y[:1])  # equal ones are 0 from their mean
        return jnp.sum(jnp.abs(y - jnp.mean(y, axis=0, keepdims=True)) ** 2) / len(y)

    squares = [untyped(square, x, P()) for x in leaves]
    return jnp.sqrt(jnp.stack(squares).sum())


def _means(leaves: list[jax.Array]) -> list[jax.Array]:
    def mean(x):
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return x[0]
        y = x.astype(wide(x.dtype))
        # Relative to worker 0's value, so that equal values have exactly that mean;
        # not so where the difference is infinite, or that of two infinities.
        mean = y[0] + jnp.mean(y - y[:1], axis=0)
        whole = jnp.sum(y / len(y), axis=0)  # a sum of large ones would be infinite
        return jnp.where(jnp.isfinite(mean), mean, whole).astype(x.dtype)

    return [untyped(mean, x, P(*jax.typeof(x).sharding.spec[1:])) for x in leaves]


@functools.partial(jax.jit, static_argnums=1)
def _spreads(leaves: list[jax.Array], shardings: tuple[Any, ...]) -> jax.Array:
    def spread_of(x):
        if jnp.issubdtype(x.dtype, jnp.complexfloating):
            x = jnp.stack([x.real, x.imag], axis=-1)
        x = x.astype(jnp.uint8) if x.dtype == jnp.bool_ else x
        if dtypes.itemsize_bits(x.dtype) < 8:
            x = x.astype(jnp.float32)
        low, high = extremes(x, 0)
        apart = high.astype(float) - low.astype(float)  # doubles in x64
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            # Large integers may differ by less than float32 resolves.
            apart = jnp.maximum(apart, 1)
        return largest(jnp.where(high == low, 0, apart))  # infinities, too

    every = map(all_copies, leaves, shardings)
    return jnp.stack([spread_of(x) for x in every])


def _models(tree: Any) -> list[jax.Array]:
    """Leaves [n, ...] of n models; slices [n k, ...] of all workers as [n, k, ...]."""
    return [
        x.value.reshape(len(x.value) // x.servers, x.servers, *x.value.shape[1:])
        if is_sliced(x)
        else x
        for x in jax.tree.leaves(tree, is_leaf=is_sliced)
    ]


def is_sliced(x: Any) -> bool:
    """Whether it is a `Shard`, whose slices differ by right."""
    return hasattr(type(x), "joined")  # what a wrapper passes on is not its own


def of_one_worker(caller: str, params: Any, workers: int) -> Any:
    """Params as one worker has them: of slices [n, ...], which all have, its own.

    What is not a slice, or is one worker's already, stays as it is. Equal copies of all
    workers are refused.
    """
    if not any(map(is_sliced, jax.tree.leaves(params, is_leaf=is_sliced))):
        require_one_model(caller, params, workers)

    def one(x: Any) -> Any:
        if not is_sliced(x) or np.ndim(x.value) < 2 or x.value.shape[0] != workers:
            return x
        own = jax.ShapeDtypeStruct(x.value.shape[1:], x.value.dtype)
        return dataclasses.replace(x, value=own)

    return jax.tree.map(one, params, is_leaf=is_sliced)


def _without_workers(x: Any) -> NamedSharding | None:
    """How the mean lies; an array of NumPy's lies nowhere."""
    sharding = getattr(x, "sharding", None)
    if not isinstance(sharding, NamedSharding):
        return None
    return NamedSharding(sharding.mesh, P(*sharding.spec[1:]))


def _means_apart(leaves: list[Any]) -> list[jax.Array]:
    """The means, with one copy of each, unless axes beside the workers' shard some."""
    shardings = [_without_workers(x) for x in leaves]
    with unswitched():
        arrays = jax.jit(_means, out_shardings=shardings)(leaves)
    if all(x.is_fully_replicated for x in arrays):
        return [x.addressable_data(0) for x in arrays]
    return arrays
