"""What a step takes and returns: worker state, a batch to divide, and metrics."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._arrays import difference, require_arrays
from relaxjax._core._phases import clocks_of, ticking
from relaxjax._core._tree import (
    dtype_and_shape,
    is_key,
    key_path,
    layout_of,
    leaf_names,
    wide,
)
from relaxjax.workers._mesh import WorkerMesh


def place_batch(batch: Any, workers: WorkerMesh) -> Any:
    """The batch on the mesh, its rows divided among the workers."""

    def put(name: str, leaf: Any) -> Any:
        shape = jnp.shape(leaf)
        if not shape:
            raise ValueError(
                f"data_parallel: batch leaf {name!r} has no axis to divide among "
                f"{workers.n} workers; pass it as state (relaxjax.to_workers), or "
                "close over it"
            )
        own = is_own_rows(leaf, workers)
        _require_divisible(name, shape[0], workers, own)
        if not isinstance(workers.mesh, Mesh):
            return _untyped(leaf)
        if not own:
            return placed(_divided(leaf, workers), workers)
        rows = shape[0] // (workers.here or workers.n) * workers.n
        return _spread(leaf, (rows, *shape[1:]), workers)

    leaves, structure = jax.tree.flatten(batch)
    if leaves and all(0 in jnp.shape(x) for x in leaves):
        raise ValueError(
            f"data_parallel: the batch has no rows: leaf {leaf_names(batch)[0]!r} has "
            f"shape {jnp.shape(leaves[0])}. Leave out such a step"
        )
    return structure.unflatten(map(put, leaf_names(batch), leaves))


def _divided(leaf: Any, workers: WorkerMesh) -> Any:
    """An array that lies on a mesh otherwise, such as whole everywhere, by its rows.

    Typed axes would be at odds with those of the step.
    """
    if isinstance(leaf, Tracer) or not isinstance(leaf, jax.Array):
        return leaf
    lies = leaf.sharding
    if not isinstance(lies, NamedSharding):  # on one device, perhaps by a prefetcher
        return jax.device_put(leaf, workers.sharding()) if leaf.committed else leaf
    first, *others = (*lies.spec, *[None] * (leaf.ndim - len(lies.spec)))
    rows = first if isinstance(first, tuple) else (first,)
    if lies.mesh == workers.mesh:
        if rows == workers.axis_name:
            return leaf
        rest = [None if _names(x) & {*workers.axis_name} else x for x in others]
        return jax.device_put(leaf, workers.sharding(P(workers.axis_name, *rest)))
    return jax.device_put(leaf, workers.sharding())


def _untyped(leaf: Any) -> Any:
    """An array whose type says nothing of its mesh: `jax.vmap` maps no other."""
    mesh = _mesh_of(leaf)
    if mesh is None or not _is_explicit(mesh):
        return leaf
    auto = Mesh(mesh.devices, mesh.axis_names)
    return jax.device_put(leaf, NamedSharding(auto, leaf.sharding.spec))


def _mesh_of(leaf: Any) -> Mesh | None:
    """The mesh of devices that an array lies on, by a sharding with names."""
    lies = None if isinstance(leaf, Tracer) else getattr(leaf, "sharding", None)
    mesh = lies.mesh if isinstance(lies, NamedSharding) else None
    return mesh if isinstance(mesh, Mesh) else None


def _is_explicit(mesh: Any) -> bool:
    """Whether an axis of a mesh is part of the arrays' types."""
    return AxisType.Explicit in (mesh.axis_types or ())


def require_untyped(workers: WorkerMesh) -> None:
    """Refuses emulated workers whose arrays would be typed by a mesh around them."""
    around = jax.sharding.get_abstract_mesh()
    if not isinstance(workers.mesh, Mesh) and _is_explicit(around):
        raise ValueError(
            "data_parallel: emulated workers are called inside jax.set_mesh of a mesh "
            f"with Explicit axes {around.axis_names}, by which jax.vmap cannot bring "
            "them together: call the step outside of it, or make that mesh with "
            "axis_types=(AxisType.Auto,) * its number of axes"
        )


def require_state(state: Any, workers: WorkerMesh) -> None:
    """Refuses what is no array, lies on other devices, or in another order of them."""
    require_arrays(state, "data_parallel")
    if not isinstance(workers.mesh, Mesh):
        return
    here = [device.id for device in workers.mesh.devices.flat]
    for name, leaf in zip(leaf_names(state), jax.tree.leaves(state), strict=True):
        mesh = _mesh_of(leaf)
        there = here if mesh is None else [device.id for device in mesh.devices.flat]
        if there != here:
            raise ValueError(
                f"data_parallel: state leaf {name!r} lies on the devices {there}, and "
                f"the mesh of the step is of {here}: make the state for that mesh, by "
                "relaxjax.init or relaxjax.to_workers, or move it, by jax.device_put"
            )


def _names(part: Any) -> set[Any]:
    return {*part} if isinstance(part, tuple) else {part}


def described(batch: Any, workers: WorkerMesh) -> dict[str, str]:
    """The leaves of a batch, as all processes must have them."""

    def text(x: Any) -> str:
        whole = workers.processes > 1 and not is_own_rows(x, workers)
        return dtype_and_shape(x) + (" of all processes" if whole else "")

    leaves = zip(leaf_names(batch), jax.tree.leaves(batch), strict=True)
    return {f"batch leaf {k!r}": text(x) for k, x in leaves}


def is_own_rows(leaf: Any, workers: WorkerMesh) -> bool:
    """Whether a leaf of a batch is this process's rows, and not those of all.

    An array of the host is. So is a `jax.Array` that lies whole on this process, where
    workers are on several.
    """
    if not isinstance(leaf, jax.Array):
        return not isinstance(leaf, jax.ShapeDtypeStruct)
    known = not isinstance(leaf, Tracer)
    return known and workers.processes > 1 and leaf.is_fully_addressable


def _require_divisible(name: str, rows: int, workers: WorkerMesh, own: bool) -> None:
    n = (workers.here or workers.n) if own else workers.n
    if not rows % n:
        return
    if n == workers.n:
        raise ValueError(
            f"data_parallel: batch leaf {name!r} has {rows} rows, which do not "
            f"divide among {n} workers: make it a multiple of {n} (drop or repeat "
            "rows)"
        )
    raise ValueError(
        f"data_parallel: batch leaf {name!r} has {rows} rows on this process, which "
        f"do not divide among its {n} of the {workers.n} workers. Every process gives "
        f"its own rows, and no other process's: make them a multiple of {n} here "
        "(drop or repeat rows)"
    )


def _spread(leaf: Any, shape: tuple[int, ...], workers: WorkerMesh) -> jax.Array:
    """This process's rows as its part of an array of all rows, of `shape`."""
    if not isinstance(leaf, jax.Array):
        dtype = jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)
        leaf = np.asarray(leaf, dtype)
        return jax.make_array_from_process_local_data(workers.sharding(), leaf, shape)
    # Device to device: what a loader has put there does not come back to the host.
    places = workers.sharding().addressable_devices_indices_map(shape)
    starts = [index[0].start or 0 for index in places.values() if index]
    size, rank = shape[0] // workers.n, {x: i for i, x in enumerate(sorted({*starts}))}
    parts = [leaf[rank[x] * size :][:size] for x in starts]
    return jax.make_array_from_single_device_arrays(
        shape, workers.sharding(), jax.device_put(parts, list(places))
    )


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
    last = (
        ". Only the last argument is the batch: pass several arrays of one as a tuple, "
        "such as step(params, opt_state, (inputs, labels))"
    )
    for path, leaf in jax.tree.leaves_with_path(state):
        shape = jnp.shape(leaf)
        if shape[:1] != (n,):
            raise ValueError(
                f"data_parallel: leaf {key_path(path[1:])!r} of state argument "
                f"{path[0].idx} has shape {shape}, without a leading axis of {n} "
                "workers. Params and optimizer state come from "
                "relaxjax.init(tx, params, mesh), everything else from "
                "relaxjax.to_workers(tree, mesh), both with this mesh"
                + last
                * (path[0].idx == len(state) - 1)
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
                f"metrics ({len(args)} values); it returned {got}. A batch of "
                "several arrays is one argument, a tuple"
            )
        _require_clocks(before, ticked)
        _require_stable(before, out[:-1])
        _require_numbers(out[-1])
        return out[:-1], out[-1]

    return one_worker


def _require_numbers(metrics: Any) -> None:
    """Refuses metrics without a mean, such as a text, a key, or one of many weights."""
    for path, x in jax.tree.leaves_with_path(metrics):
        try:
            kind: Any = jax.typeof(x)
        except TypeError:
            kind = type(x).__name__
        if isinstance(kind, str) or is_key(kind):
            raise TypeError(
                f"data_parallel: metric {key_path(path)!r} is of type {kind}, and has "
                "no mean over the workers. Return numbers, and what is to be kept as "
                "a part of the state"
            )
    shape = jnp.shape(metrics["weight"]) if _is_weighted(metrics) else ()
    if shape:
        raise ValueError(
            f"data_parallel: the metric 'weight' has shape {shape} on each worker, and "
            "weights its mean: give one number, such as mask.sum(), and metrics that "
            "are means over the worker's own rows"
        )


def _is_weighted(metrics: Any) -> bool:
    return isinstance(metrics, Mapping) and "weight" in metrics


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

    if not _is_weighted(metrics):
        return jax.tree.map(lambda x: jnp.mean(widen(x), axis=0), metrics)
    weight = widen(metrics["weight"])
    total = jnp.sum(weight, axis=0)

    def weighted(x):
        w = weight.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.sum(jnp.where(w == 0, 0, w * widen(x)), axis=0) / total

    rest = {k: jax.tree.map(weighted, v) for k, v in metrics.items() if k != "weight"}
    return {**rest, "weight": total}
