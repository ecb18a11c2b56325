"""Worker state: every leaf has one leading axis over the workers.

On a mesh that axis is split over the devices, so that each holds its own slice and
nothing else; in emulation it is an ordinary batch axis. Nothing is ever declared to be
the same on all workers, so nothing can be silently different.

On a CPU mesh the reshapes for that axis are kept apart from the step: fused into its
kernels by XLA, they have values computed twice, and all donated state copied.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from relaxjax._core._pieces import once_on_cpu
from relaxjax.workers._mesh import Emulation, WorkerMesh


def drop_axis(tree: Any) -> Any:
    """This worker's slice: drops a leading axis of size 1."""
    return jax.tree.map(lambda x: x[0], tree)


def add_axis(tree: Any) -> Any:
    """The slice with its leading axis again."""
    return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)


def per_worker(fn: Callable[..., Any], workers: WorkerMesh, *, batch: bool) -> Callable:
    """Maps `fn`, from one worker's arguments to its outputs, over the workers' axis.

    Arguments and outputs of the result have a leading worker axis; with `batch`, the
    last argument is a batch, whose leading axis is divided among the workers. A second
    call with arguments alike does not trace `fn` again.
    """
    mesh, names = workers.mesh, workers.axis_name
    if isinstance(mesh, Emulation):
        return jax.jit(_emulated(fn, workers, batch), inline=True)

    def local(*args):
        state, rest = (args[:-1], args[-1:]) if batch else (args, ())
        return add_axis(once_on_cpu(fn(*once_on_cpu(drop_axis(state)), *rest)))

    mapped = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=P(names),
        out_specs=P(names),
        axis_names=frozenset(names),
        check_vma=False,
    )
    return jax.jit(mapped, inline=True)


def _emulated(fn: Callable[..., Any], workers: WorkerMesh, batch: bool) -> Callable:
    sizes, mapped = workers.sizes, fn
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
    """Puts a host array [n, ...] on the mesh; `spec` says how for the other axes."""
    if isinstance(workers.mesh, Emulation):
        return jnp.asarray(leaf)
    sharding = workers.sharding(P(workers.axis_name, *spec))
    return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])
