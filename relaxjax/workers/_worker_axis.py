"""How what a worker owns is held: one leading axis over the workers on every leaf.

On a mesh that axis is split over the devices, so each holds its own slice and nothing
more; emulated, it is an ordinary batch axis. Nothing is ever declared to be the same on
all workers, so nothing can be silently different.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._dtypes import is_key
from relaxjax.workers._mesh import Emulation, WorkerMesh, workers_of


def drop_axis(tree: Any) -> Any:
    """Takes this worker's slice: drops a leading axis of 1."""
    return jax.tree.map(lambda x: x[0], tree)


def add_axis(tree: Any) -> Any:
    """Adds the leading axis again."""
    return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)


def per_worker(fn: Callable[..., Any], workers: WorkerMesh, *, batch: bool) -> Callable:
    """Maps `fn` over the workers' axis.

    Args:
      fn: from one worker's arguments to one worker's outputs.
      workers: where.
      batch: whether the last argument is a batch, whose leading axis is divided among
        the workers; the other arguments have a leading worker axis.

    Returns:
      A function of stacked arguments, to be jitted; all its outputs are stacked.
    """
    mesh, names = workers.mesh, workers.axis_name
    if isinstance(mesh, Emulation):
        return _emulated(fn, workers, batch)

    def local(*args):
        args = (*drop_axis(args[:-1]), args[-1]) if batch else drop_axis(args)
        return add_axis(fn(*args))

    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=P(names),
        out_specs=P(names),
        axis_names=frozenset(names),
        check_vma=False,
    )


def _emulated(fn: Callable[..., Any], workers: WorkerMesh, batch: bool) -> Callable:
    sizes = tuple(workers.mesh.shape[name] for name in workers.axis_name)
    mapped = fn
    for name in reversed(workers.axis_name):
        mapped = jax.vmap(mapped, axis_name=name)

    def unfold(x):  # [n, ...] -> [outer, inner, ...]
        return x.reshape(*sizes, *x.shape[1:])

    def divide(x):  # [n * b, ...] -> [outer, inner, b, ...]
        return x.reshape(*sizes, x.shape[0] // workers.n, *x.shape[1:])

    def fold(x):
        return x.reshape(workers.n, *x.shape[len(sizes) :])

    def stacked(*args):
        rest, last = (args[:-1], args[-1:]) if batch else (args, ())
        args = *jax.tree.map(unfold, rest), *jax.tree.map(divide, last)
        return jax.tree.map(fold, mapped(*args))

    return stacked


def put(leaf: np.ndarray, workers: WorkerMesh, spec: P) -> jax.Array:
    """Puts a stacked host array [n, ...] on the mesh; `spec` is of the other axes."""
    if isinstance(workers.mesh, Emulation):
        return jnp.asarray(leaf)
    sharding = workers.sharding(P(workers.axis_name, *spec))
    return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])


def to_workers(
    tree: Any, mesh: Any, *, axis_name: AxisName | None = None, same: bool = False
) -> Any:
    """Gives every worker its own copy of a tree, as worker state for `data_parallel`.

    Typed PRNG keys are folded with the worker's index, so that workers draw different
    numbers. With several processes, all receive process 0's values.

    Args:
      tree: a pytree of arrays, numbers or typed keys: batch statistics, counters, ...
      mesh: a mesh, or `relaxjax.emulate(...)`.
      axis_name: the data-parallel axes of the mesh; None means all of them.
      same: keep typed keys the same on all workers.

    Returns:
      The tree with a leading worker axis [n, ...] on each leaf, placed on the mesh.

    Raises:
      TypeError: `mesh` is not one.
      ValueError: unknown axis.

    Example:
      >>> import relaxjax
      >>> print(relaxjax.to_workers(7, relaxjax.emulate(3)))
      [7 7 7]
    """
    workers = workers_of(mesh, axis_name, "to_workers")

    def one(leaf):
        if isinstance(leaf, jax.Array) and is_key(leaf):
            data = jax.random.key_data(_fold_keys(leaf, workers.n, same))
            placed = put(
                broadcast_from_first_process(data, workers.processes), workers, P()
            )
            return jax.random.wrap_key_data(placed, impl=jax.random.key_impl(leaf))
        host = broadcast_from_first_process(jnp.asarray(leaf), workers.processes)
        stacked = np.broadcast_to(host, (workers.n, *host.shape))
        return put(stacked, workers, _other_spec(leaf, workers))

    return jax.tree.map(one, tree)


def _fold_keys(keys: jax.Array, n: int, same: bool) -> jax.Array:
    """Key[...] -> key[n, ...]."""

    def fold(i):
        folded = jax.vmap(lambda key: jax.random.fold_in(key, i))(keys.ravel())
        return keys if same else folded.reshape(keys.shape)

    return jax.vmap(fold)(jnp.arange(n))


def _other_spec(leaf: Any, workers: WorkerMesh) -> P:
    """How a leaf is already sharded over the axes that are not the workers'."""
    sharding = getattr(leaf, "sharding", None)
    if isinstance(sharding, NamedSharding) and isinstance(workers.mesh, Mesh):
        names = {name for part in sharding.spec if part for name in axes_of(part)}
        if names <= set(workers.mesh.axis_names) - set(workers.axis_name):
            return sharding.spec
    return P()


def broadcast_from_first_process(
    array: jax.Array | np.ndarray, processes: int
) -> np.ndarray:
    """The array of process 0, on every process."""
    if processes == 1:
        return np.asarray(array)
    return np.asarray(multihost_utils.broadcast_one_to_all(np.asarray(array)))
