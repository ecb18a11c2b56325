"""A batch on the mesh: its rows are divided among the workers, wherever they lie."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._tree import dtype_and_shape, leaf_names
from relaxjax._core.layouts._copies import is_explicit
from relaxjax.workers._mesh import WorkerMesh

_REFUSED = re.compile(
    "incompatible devices|lower jaxpr with verifier errors"
    "|inconsistent axis specs|Length of sharding.spec|^Sharding spec .* implies"
    r"|^\(\d+, P\("  # the numbers of dimensions, in an assertion of JAX 0.10
)
"""What JAX 0.10 to 0.12 say of arrays that lie otherwise, before a program runs."""


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


def moved(state: Any, workers: WorkerMesh, error: Exception) -> Any:
    """State that JAX refused for where it lies, moved to its workers.

    On several processes it stays where it is. Any other error is raised again: a step
    may have begun to run, and is never run twice.
    """
    if workers.processes > 1 or not _REFUSED.search(str(error)):
        raise error
    on_mesh = isinstance(workers.mesh, Mesh)
    place = (lambda leaf: _divided(leaf, workers)) if on_mesh else _untyped
    return jax.tree.map(place, state)


def _divided(leaf: Any, workers: WorkerMesh) -> Any:
    """An array that lies on a mesh otherwise, such as whole everywhere, by its rows.

    Rows are the workers' own, as in worker state, or theirs one after the other. Typed
    axes would be at odds with those of the step.
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


def _names(part: Any) -> set[Any]:
    return {*part} if isinstance(part, tuple) else {part}


def _untyped(leaf: Any) -> Any:
    """An array whose type says nothing of its mesh: `jax.vmap` maps no other."""
    mesh = mesh_of(leaf)
    if mesh is None or not is_explicit(mesh):
        return leaf
    auto = Mesh(mesh.devices, mesh.axis_names)
    return jax.device_put(leaf, NamedSharding(auto, leaf.sharding.spec))


def described(batch: Any, workers: WorkerMesh) -> dict[str, str]:
    """The leaves of a batch, as all processes must have them.

    Processes may have unlike numbers of workers, and so unlike numbers of rows.
    """
    here = workers.here

    def text(x: Any) -> str:
        shape = jnp.shape(x)
        if workers.processes == 1:
            return dtype_and_shape(x)
        if not is_own_rows(x, workers):
            return dtype_and_shape(x) + " of all processes"
        if not shape or not here or shape[0] % here:  # refused where it is placed
            return dtype_and_shape(x)
        share = jax.ShapeDtypeStruct((shape[0] // here, *shape[1:]), jnp.result_type(x))
        return dtype_and_shape(share) + " for each worker"

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


def mesh_of(leaf: Any) -> Mesh | None:
    """The mesh of devices that an array lies on, by a sharding with names."""
    lies = None if isinstance(leaf, Tracer) else getattr(leaf, "sharding", None)
    mesh = lies.mesh if isinstance(lies, NamedSharding) else None
    return mesh if isinstance(mesh, Mesh) else None
