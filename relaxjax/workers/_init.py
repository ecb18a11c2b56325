"""Start-up: every worker begins from the same model, with its own state beside it."""

from typing import Any

import jax
import optax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName, to_local, varying
from relaxjax._core._local import LocalState
from relaxjax._core._tree import leaf_names
from relaxjax.workers._mesh import Emulation, WorkerMesh, workers_of
from relaxjax.workers._startup_agreement import require_agreement
from relaxjax.workers._worker_axis import per_worker, to_workers


def init(
    tx: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
) -> tuple[Any, Any]:
    """Gives every worker the same params (process 0's) and its own optimizer state.

    With several processes, they first compare model, configuration and versions. Then
    the update is probed abstractly for leaves that no reducer synchronizes.

    Args:
      tx: the transformation that the train step will use.
      params: a pytree of arrays, as for one device.
      mesh: a `jax.sharding.Mesh`, or `relaxjax.emulate(...)`.
      axis_name: the data-parallel axes, (outer, inner) if two; None means all axes of
        the mesh.

    Returns:
      `(params, opt_state)`, each leaf with a leading worker axis: [n, ...].

    Raises:
      TypeError: `mesh` is not one.
      ValueError: unknown axis; processes that disagree; leaves that `tx` leaves
        unsynchronized while it synchronizes others.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.all_reduce("data"), optax.adam(1e-3))
      >>> params, state = relaxjax.init(tx, {"w": jnp.zeros(3)}, relaxjax.emulate(4))
      >>> params["w"].shape
      (4, 3)
    """
    workers = workers_of(mesh, axis_name, "init")
    require_agreement(tx, params, workers)
    _require_synchronized(tx, params, workers)
    stacked = to_workers(params, mesh, axis_name=axis_name)
    return stacked, init_state(tx, stacked, workers)


def init_state(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh
) -> Any:
    """Every worker's state, for params with a leading worker axis."""
    make_state = per_worker(tx.init, workers, batch=False)
    if isinstance(workers.mesh, Emulation):
        return jax.jit(make_state)(params)
    shardings = _state_shardings(jax.eval_shape(make_state, params), params, workers)
    return jax.jit(make_state, out_shardings=shardings)(params)


def _state_shardings(state: Any, params: Any, workers: WorkerMesh) -> Any:
    """Moments and residuals lie as the params do, over the other axes of the mesh too.

    Nothing else would tell the compiler: zeros do not depend on the params. Parts of
    the state may be masked (`optax.MaskedNode`), as of `optax.partition`.
    """
    structure = jax.tree.structure(params)

    def masked(part: Any) -> bool:
        return isinstance(part, optax.MaskedNode)

    def mirrors(part: Any) -> bool:
        return jax.tree.structure(part, is_leaf=masked) == structure

    def lies(x: Any, p: Any) -> Any:
        if masked(x):
            return x
        return p.sharding if x.shape == p.shape else workers.sharding()

    def lie(part: Any) -> Any:
        if not mirrors(part):
            return workers.sharding()
        return jax.tree.map(lies, part, params, is_leaf=masked)

    return jax.tree.map(lie, state, is_leaf=mirrors)


def state_specs(opt_state: Any, axis_name: AxisName) -> Any:
    """Partition specs of worker state, for one's own `jax.shard_map`.

    State from `relaxjax.init` has a leading worker axis on every leaf. Inside
    `shard_map` that axis has size 1: take it off with `jax.tree.map(lambda x: x[0],
    state)`, and put it on again with `x[None]`.

    Args:
      opt_state: any worker state (params too).
      axis_name: the data-parallel axes.

    Returns:
      The same tree with `P(axis_name)` for each leaf.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> relaxjax.state_specs({"count": jnp.zeros(4)}, "data")
      {'count': P('data',)}
    """
    return jax.tree.map(lambda _: P(axis_name), opt_state)


def _require_synchronized(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh
) -> None:
    """Names leaves whose updates differ between workers while others' do not."""
    kinds, local_leaves = _probe(tx, params, workers)
    names = leaf_names(params)
    for axis in workers.axis_name:
        differ = [name for name in names if axis in kinds.get(name, ())]
        forgotten = [name for name in differ if name not in local_leaves]
        if forgotten and len(differ) < len(names):
            raise ValueError(
                f"init: nothing synchronizes the updates of {forgotten} over {axis!r}, "
                "while other leaves are synchronized, so the workers' models would "
                "drift apart. Reduce them too; or, where they are meant to differ, "
                "mark them with relaxjax.local() in optax.partition"
            )
    shared = {a for a in workers.axis_name if all(a not in k for k in kinds.values())}
    apart = {a for a in workers.axis_name if any(a in k for k in kinds.values())}
    if kinds and shared and apart and not local_leaves:
        raise ValueError(
            f"init: updates are synchronized over {sorted(shared)} but not over "
            f"{sorted(apart)}. Give the transformation all axes, such as "
            f"all_reduce({workers.axis_name}), or if {sorted(apart)} are not "
            f"data-parallel, name those that are: axis_name={sorted(shared)[0]!r}"
        )


def _probe(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh
) -> tuple[dict[str, frozenset[str]], set[str]]:
    """Axes over which each update varies, and the leaves marked `local`.

    Traced abstractly under `check_vma=True`, which is exact about what varies, from
    equal params and differing gradients. It refuses some programs that are right
    (optax's conditional wrappers around a reducer), and some updates need arguments
    that only the training loop has: then nothing is known, and nothing is refused.
    """
    kinds: dict[str, frozenset[str]] = {}
    local_leaves: set[str] = set()

    def trace(params):
        state = tx.init(params)
        marks = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, LocalState))
        for mark in marks:
            if isinstance(mark, LocalState):
                lines = mark.layout.lines.splitlines()
                local_leaves.update(line.rpartition(" ")[0] for line in lines)
        gradients = to_local(params, workers.axis_name)
        updates, _ = tx.update(gradients, state, params)
        leaves = zip(leaf_names(updates), jax.tree.leaves(updates), strict=True)
        kinds.update({name: varying(leaf) for name, leaf in leaves})
        return ()

    sizes = tuple(workers.mesh.shape[name] for name in workers.axis_name)
    mesh = AbstractMesh(sizes, workers.axis_name)
    probe = jax.shard_map(trace, mesh=mesh, in_specs=P(), out_specs=())
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(jax.typeof(x).shape, jax.typeof(x).dtype), params
    )
    try:
        jax.eval_shape(probe, abstract)
    except (TypeError, ValueError, NotImplementedError):
        return {}, set()
    return kinds, local_leaves
