"""What a step takes and returns: worker state, a batch to divide, and metrics."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from relaxjax._core._tree import difference, key_path, layout_of, leaf_names, wide
from relaxjax.workers._mesh import WorkerMesh


def place_batch(batch: Any, workers: WorkerMesh) -> Any:
    """The batch on the mesh, its rows divided among the workers."""

    def put(name, leaf):
        shape = jnp.shape(leaf)
        if not shape:
            raise ValueError(
                f"data_parallel: batch leaf {name!r} has no axis to divide among "
                f"{workers.n} workers; pass it as state (relaxjax.to_workers), or "
                "close over it"
            )
        host = not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
        rows = shape[0] * (workers.processes if host else 1)
        if rows % workers.n:
            raise ValueError(
                f"data_parallel: batch leaf {name!r} has {rows} rows, which do not "
                f"divide among {workers.n} workers: make it a multiple of {workers.n} "
                "(drop or repeat rows)"
            )
        if host and isinstance(workers.mesh, Mesh):
            dtype = jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)
            leaf = np.asarray(leaf, dtype)
            return jax.make_array_from_process_local_data(workers.sharding(), leaf)
        return placed(leaf, workers)

    leaves, structure = jax.tree.flatten(batch)
    return structure.unflatten(map(put, leaf_names(batch), leaves))


def placed(tree: Any, workers: WorkerMesh) -> Any:
    """Gives abstract arrays without a sharding that of worker state."""

    def put(leaf):
        bare = isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is None
        if not bare or not isinstance(workers.mesh, Mesh):
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=workers.sharding())

    return jax.tree.map(put, tree)


def require_worker_axis(state: list[Any], n: int) -> None:
    """Refuses state whose leaves do not have a leading axis of n workers."""
    for path, leaf in jax.tree.leaves_with_path(state):
        shape = jnp.shape(leaf)
        if shape[:1] != (n,):
            raise ValueError(
                f"data_parallel: leaf {key_path(path[1:])!r} of state argument "
                f"{path[0].idx} has shape {shape}, without a leading axis of {n} "
                "workers. Params and optimizer state come from "
                "relaxjax.init(tx, params, mesh), everything else from "
                "relaxjax.to_workers(tree, mesh), both with this mesh"
            )


def require_stable(before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    """Refuses state that changes in the step: the next call would compile anew."""
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        wrong = difference(layout_of(old), layout_of(new), dtypes=True)
        if wrong is None and jax.tree.structure(old) != jax.tree.structure(new):
            wrong = f"{jax.tree.structure(old)} became {jax.tree.structure(new)}"
        if wrong:
            raise ValueError(
                f"data_parallel: the step changed state argument {i}: {wrong}. It must "
                "return each state with the structure, shapes and dtypes it was given"
            )


def mean_over_workers(metrics: Any) -> Any:
    """Means over the leading axis, weighted by `metrics["weight"]` if there is one."""

    def widen(x):
        return x.astype(wide(x.dtype))

    if not (isinstance(metrics, Mapping) and "weight" in metrics):
        return jax.tree.map(lambda x: jnp.mean(widen(x), axis=0), metrics)
    weight = widen(metrics["weight"])
    total = jnp.sum(weight, axis=0)

    def weighted(x):
        w = weight.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.sum(jnp.where(w == 0, 0, w * widen(x)), axis=0) / total

    rest = {k: jax.tree.map(weighted, v) for k, v in metrics.items() if k != "weight"}
    return {**rest, "weight": total}
