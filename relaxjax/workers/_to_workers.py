"""From a user's mesh and trees to workers and their state."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._tree import is_key, layout_of
from relaxjax._core._worker_key import fold_all
from relaxjax._core.foreign._switches import unswitched
from relaxjax._core.layouts._sharding import is_masked
from relaxjax.workers._emulated_keys import without_equal_keys
from relaxjax.workers._mesh import Emulation, WorkerMesh
from relaxjax.workers._processes import broadcast_from_first_process, require_whole_job
from relaxjax.workers._startup_agreement import require_equal_processes
from relaxjax.workers._worker_axis import put
from relaxjax.workers._worker_state import require_params


def workers_of(mesh: Any, axis_name: AxisName | None, caller: str) -> WorkerMesh:
    """Checks a user's mesh and axis name."""
    if isinstance(mesh, AbstractMesh):
        mesh = _concrete(mesh, caller)
    if isinstance(mesh, Mesh):
        mesh = Mesh(mesh.devices, mesh.axis_names)  # Auto axes
        require_whole_job(mesh, caller)
    elif not isinstance(mesh, Emulation):
        size = mesh if isinstance(mesh, int) else 8
        raise TypeError(
            f"{caller}: mesh={mesh!r} is not a mesh. For workers on devices pass "
            f'jax.make_mesh(({size},), ("data",)); to emulate them on one device pass '
            f"relaxjax.emulate({size})"
        )
    names = tuple(mesh.axis_names) if axis_name is None else axes_of(axis_name)
    unknown = [name for name in names if name not in mesh.shape]
    if unknown:
        raise ValueError(
            f"{caller}: the mesh has no axis {unknown[0]!r}; its axes are "
            f"{', '.join(map(repr, mesh.axis_names))}"
        )
    if isinstance(mesh, Emulation) and set(names) != set(mesh.axis_names):
        raise ValueError(
            f"{caller}: axis_name={axis_name!r} leaves out axes of an emulated mesh "
            f"{mesh.shape}; there is no compiler to take them: name them all"
        )
    return WorkerMesh(mesh, names, math.prod(mesh.shape[name] for name in names))


def _concrete(mesh: AbstractMesh, caller: str) -> Mesh:
    need, have = mesh.size, jax.device_count()
    if need > have:
        raise ValueError(
            f"{caller}: a mesh of {need} devices was asked for, and there are {have}. "
            f"Emulate the workers on one device with relaxjax.emulate({need}), or "
            f'emulate devices with jax.config.update("jax_num_cpu_devices", {need}) '
            "before JAX is first used"
        )
    return jax.make_mesh(tuple(mesh.shape.values()), tuple(mesh.axis_names))


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
      TypeError: `mesh` is not a mesh, or a leaf is not an array.
      ValueError: unknown axis; the tree is n equal copies already; `same` keys of a
        kind from which emulated workers draw unlike numbers; processes have unlike
        shapes or dtypes.
      RuntimeError: another process has not called it within half an hour.

    Example:
      >>> import relaxjax
      >>> print(relaxjax.to_workers(7, relaxjax.emulate(3)))
      [7 7 7]
    """
    workers = workers_of(mesh, axis_name, "to_workers")
    require_params("to_workers", tree, workers.n)
    if workers.processes > 1:
        kinds = {f"leaf {k!r}": text for k, text in layout_of(tree).leaves.items()}
        require_equal_processes("to_workers", kinds)

    def copy(leaf):
        if isinstance(leaf, jax.Array) and is_key(leaf):
            data = jax.random.key_data(_fold_keys(leaf, workers.n, same))
            host = broadcast_from_first_process(data, workers.processes)
            placed = put(host, workers, P())
            return jax.random.wrap_key_data(placed, impl=jax.random.key_impl(leaf))
        host = broadcast_from_first_process(jnp.asarray(leaf), workers.processes)
        stacked = np.broadcast_to(host, (workers.n, *host.shape))
        return put(stacked, workers, _other_spec(leaf, workers))

    with unswitched():
        copies = jax.tree.map(copy, tree)
    if isinstance(workers.mesh, Emulation):
        return without_equal_keys("to_workers", copies)
    return copies


def _fold_keys(keys: jax.Array, n: int, same: bool) -> jax.Array:
    """`keys[...] -> keys[n, ...]`, folded with each worker's index unless `same`."""
    return jax.vmap(lambda i: keys if same else fold_all(keys, i))(jnp.arange(n))


def _other_spec(leaf: Any, workers: WorkerMesh) -> P:
    """The spec by which a leaf is sharded over the axes that are not the workers'."""
    sharding = getattr(leaf, "sharding", None)
    if isinstance(sharding, NamedSharding) and isinstance(workers.mesh, Mesh):
        names = {name for part in sharding.spec if part for name in axes_of(part)}
        if names <= set(workers.mesh.axis_names) - set(workers.axis_name):
            return sharding.spec
    return P()


def state_shardings(state: Any, params: Any, workers: WorkerMesh) -> Any:
    """Shards moments and residuals as the params, over the other axes of the mesh too.

    Nothing else would tell the compiler: zeros do not depend on the params. Parts of
    the state may be masked (`optax.MaskedNode`), for example by `optax.partition`.
    """
    structure = jax.tree.structure(params)

    def mirrors(part: Any) -> bool:
        return jax.tree.structure(part, is_leaf=is_masked) == structure

    def of_leaf(x: Any, p: Any) -> Any:
        if is_masked(x):
            return x
        return p.sharding if x.shape == p.shape else workers.sharding()

    def of_part(part: Any) -> Any:
        if not mirrors(part):
            return workers.sharding()
        return jax.tree.map(of_leaf, part, params, is_leaf=is_masked)

    return jax.tree.map(of_part, state, is_leaf=mirrors)
