"""What a step takes and returns: worker state, a batch to divide, and metrics."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from relaxjax._core._checks import difference
from relaxjax._core._phases import clocks_of, ticking
from relaxjax._core._tree import key_path, layout_of, leaf_names, wide
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


def require_worker_axis(state: tuple[Any, ...], n: int) -> None:
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


def checked(step: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """One worker's step, whose results are looked at in its trace."""

    def one_worker(*args):
        before = jax.tree.map(lambda x: x, args[:-1])  # modules of flax.nnx may change
        with ticking() as ticked:
            out = step(*args)
        if not isinstance(out, tuple) or len(out) != len(args):
            got = f"{len(out)} values" if isinstance(out, tuple) else type(out)
            raise TypeError(
                f"data_parallel: the step takes {len(args) - 1} states and a "
                "batch, so it must return a tuple of the same states and then "
                f"metrics ({len(args)} values); it returned {got}"
            )
        _require_clocks(before, ticked)
        _require_stable(before, out[:-1])
        return out[:-1], out[-1]

    return one_worker


def _require_clocks(state: tuple[Any, ...], ticked: list[tuple[int, ...]]) -> None:
    """Refuses phases that nobody can end: their clocks are not in the state."""
    ends = sorted(end for coming in ticked for end in coming)
    if ends and not any(clock.ends for clock in clocks_of(state)):
        raise ValueError(
            "data_parallel: the step uses a transformation whose phase ends after "
            f"{ends[0]} steps, and its clock is not in the state that the step gets: "
            "the phase would never end. Pass the optimizer's state as relaxjax.init "
            "makes it; pass an nnx.Optimizer whole, as in model, optimizer = "
            "relaxjax.to_workers((model, optimizer), mesh), and not split by nnx.split"
        )


def _require_stable(before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
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
