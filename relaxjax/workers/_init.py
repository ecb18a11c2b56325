"""Start-up: every worker begins from the same model, with its own state beside it."""

from collections.abc import Mapping
from typing import Any

import jax
import optax
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_transformation
from relaxjax._core.traced._extra_args import giving
from relaxjax.workers._emulated_keys import without_equal_keys
from relaxjax.workers._mesh import Emulation, WorkerMesh
from relaxjax.workers._startup_agreement import require_agreement
from relaxjax.workers._to_workers import state_shardings, to_workers, workers_of
from relaxjax.workers._worker_axis import per_worker
from relaxjax.workers._worker_state import require_params
from relaxjax.workers.followed._drawing_keys import with_own_keys
from relaxjax.workers.followed._synchronized import require_synchronized


def init(
    tx: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    reduced_in_step: bool = False,
    extra_args: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """Gives every worker the same params (process 0's) and its own optimizer state.

    Several processes first compare model, configuration and versions. Then the update
    is traced abstractly, to find relaxations in wrong places, and leaves that no
    reducer synchronizes. A typed key in the optimizer's state is each worker's own
    (`worker_key`) if its numbers go into a relaxation, as noise before a reducer does,
    and the same on all workers otherwise.

    Args:
      tx: the transformation that the train step uses.
      params: a pytree of arrays, as for one device.
      mesh: a `jax.sharding.Mesh`, or `relaxjax.emulate(...)`.
      axis_name: the data-parallel axes, (outer, inner) if two; None means all axes of
        the mesh.
      reduced_in_step: whether the train step reduces gradients before `tx` sees them,
        as `relaxjax.reduce_in_backward` does; then `tx` is not looked into.
      extra_args: arrays (or their shapes and dtypes) and functions that `tx.update`
        takes by name beside params, to trace it with. Those that optax's optimizers
        ask for (`value`, `grad`, `value_fn`, `obj_fn`, `grad_fn`) need not be given.

    Returns:
      `(params, opt_state)`, each leaf with a leading worker axis: [n, ...].

    Raises:
      TypeError: `mesh` is not a mesh, or a leaf of `params` is not an array.
      ValueError: unknown axis; `params` are worker state already; processes disagree;
        in `tx` a relaxation stands on the wrong side of the optimizer, a reducer behind
        another, or some leaves are left unsynchronized while others are not, or a key
        draws on both sides of a relaxation. A warning if nothing synchronizes, or if
        `tx.update` could not be traced.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.all_reduce("data"), optax.adam(1e-3))
      >>> params, state = relaxjax.init(tx, {"w": jnp.zeros(3)}, relaxjax.emulate(4))
      >>> params["w"].shape
      (4, 3)
    """
    require_transformation("init", "tx", tx)
    workers = workers_of(mesh, axis_name, "init")
    require_params("init", params, workers.n)
    with giving(extra_args):
        look = require_agreement if reduced_in_step else checked
        tx = look(tx, params, workers, extra_args) or tx
        stacked = to_workers(params, mesh, axis_name=axis_name)
        return stacked, init_state(tx, stacked, workers)


def checked(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None = None,
) -> optax.GradientTransformation:
    """The transformation, whose keys are each worker's own; refused as by `init`.

    Args:
      tx: the transformation.
      params: params of one worker, or their shapes.
      workers: the workers.
      extra_args: see `init`.
    """
    require_agreement(tx, params, workers, extra_args)
    return with_own_keys(tx, require_synchronized(tx, params, workers, extra_args))


def init_state(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh
) -> Any:
    """The state of every worker, for params with a leading worker axis."""
    make_state = per_worker(tx.init, workers, batch=False)
    if isinstance(workers.mesh, Emulation):
        return without_equal_keys("init", jax.jit(make_state)(params))
    shardings = state_shardings(jax.eval_shape(make_state, params), params, workers)
    return jax.jit(make_state, out_shardings=shardings)(params)


def state_shapes(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh
) -> Any:
    """Shapes and dtypes of every worker's state, for params of one; nothing is sent."""
    stacked = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((workers.n, *x.shape), x.dtype), params
    )
    return jax.eval_shape(per_worker(tx.init, workers, batch=False), stacked)


def state_specs(opt_state: Any, axis_name: AxisName) -> Any:
    """Partition specs of worker state, for your own `jax.shard_map`.

    State from `relaxjax.init` has a leading worker axis on every leaf. Inside
    `shard_map` that axis has size 1: drop it with `jax.tree.map(lambda x: x[0],
    state)`, and add it again with `x[None]`.

    Args:
      opt_state: any worker state, params too.
      axis_name: the data-parallel axes.

    Returns:
      The same tree with `P(axis_name)` for each leaf.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> relaxjax.state_specs({"count": jnp.zeros(4)}, "data")
      {'count': P('data',)}
    """
    return jax.tree.map(lambda _: P(axis_name), opt_state)
