"""Whether an update synchronizes the workers: traced abstractly, before training."""

from typing import Any

import jax
import optax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import to_local, varying
from relaxjax._core._local import LocalState
from relaxjax._core._tree import leaf_names
from relaxjax.workers._mesh import WorkerMesh


def require_synchronized(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh
) -> None:
    """Refuses leaves whose updates differ between workers while others' do not."""
    axes_of_update, local_leaves = _probe(tx, params, workers)
    names = leaf_names(params)
    for axis in workers.axis_name:
        differ = [name for name in names if axis in axes_of_update.get(name, ())]
        forgotten = [name for name in differ if name not in local_leaves]
        if forgotten and len(differ) < len(names):
            raise ValueError(
                f"init: nothing synchronizes the updates of {forgotten} over {axis!r}, "
                "while other leaves are synchronized, so the workers' models would "
                "drift apart. Reduce them too; or, where they are meant to differ, "
                "mark them with relaxjax.local() in optax.partition"
            )
    varied = frozenset().union(*axes_of_update.values())
    apart = sorted(axis for axis in workers.axis_name if axis in varied)
    shared = sorted(axis for axis in workers.axis_name if axis not in varied)
    if axes_of_update and shared and apart and not local_leaves:
        raise ValueError(
            f"init: updates are synchronized over {shared} but not over {apart}. Give "
            f"the transformation all axes, such as all_reduce({workers.axis_name}), or "
            f"if {apart} are not data-parallel, name those that are: "
            f"axis_name={shared[0]!r}"
        )


def _probe(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh
) -> tuple[dict[str, frozenset[str]], set[str]]:
    """Axes over which each update varies, and the leaves that are `local`.

    It traces abstractly under `check_vma=True`, which is exact about what varies, from
    equal params and differing gradients. JAX refuses some correct programs there
    (optax's conditional wrappers around a reducer), and some updates need arguments
    that only the training loop has: then nothing is known, and nothing is refused.
    """
    axes_of_update: dict[str, frozenset[str]] = {}
    local_leaves: set[str] = set()

    def trace(params):
        state = tx.init(params)
        for part in jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, LocalState)):
            if isinstance(part, LocalState):
                local_leaves.update(part.layout.leaves)
        gradients = to_local(params, workers.axis_name)
        updates, _ = tx.update(gradients, state, params)
        leaves = map(varying, jax.tree.leaves(updates))
        axes_of_update.update(zip(leaf_names(updates), leaves, strict=True))
        return ()

    mesh = AbstractMesh(workers.sizes, workers.axis_name)
    probe = jax.shard_map(trace, mesh=mesh, in_specs=P(), out_specs=())
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(jax.typeof(x).shape, jax.typeof(x).dtype), params
    )
    try:
        jax.eval_shape(probe, abstract)
    except (TypeError, ValueError, NotImplementedError):
        return {}, set()
    return axes_of_update, local_leaves
