"""Workers on several processes: who is where, and arrays that all processes have."""

from collections import Counter
from functools import lru_cache

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh


@lru_cache(maxsize=64)
def process_indices(mesh: Mesh) -> tuple[int, ...]:
    """Indices of the processes that a mesh spans, rising."""
    return tuple(sorted({d.process_index for d in mesh.devices.flat}))


@lru_cache(maxsize=64)
def holders_of(mesh: Mesh, axis_name: tuple[str, ...]) -> tuple[frozenset[int], ...]:
    """The processes that have devices of each worker."""
    first = [mesh.axis_names.index(x) for x in axis_name]
    devices = np.moveaxis(mesh.devices, first, range(len(first)))
    workers = devices.reshape(int(np.prod(devices.shape[: len(first)])), -1)
    return tuple(frozenset(d.process_index for d in own) for own in workers)


def workers_here(mesh: Mesh, axis_name: tuple[str, ...]) -> int:
    """Number of workers that have a device of this process."""
    return sum(jax.process_index() in own for own in holders_of(mesh, axis_name))


def require_whole_job(mesh: Mesh, caller: str) -> None:
    """Refuses a mesh over several processes of a job, unless all take part alike.

    Raises:
      ValueError: some processes have no device in it, for which the others would wait
        for ever; or numbers of devices are unequal, which JAX cannot gather from.
    """
    within, count = process_indices(mesh), jax.process_count()
    if len(within) == 1 or count == 1:  # one program alone, or one that is compiled
        return
    if len(within) < count:
        without = sorted({*range(count)} - {*within})
        raise ValueError(
            f"{caller}: the mesh has devices of the processes {[*within]} and none of "
            f"{without}: a mesh is one process's own, or has devices of all {count}. "
            "Start as many processes as take part"
        )
    devices = Counter(device.process_index for device in jax.devices())
    if len({*devices.values()}) > 1:
        each = ", ".join(f"{n} in process {i}" for i, n in sorted(devices.items()))
        raise ValueError(
            f"{caller}: processes have unequal numbers of devices ({each}), which JAX "
            "cannot gather from: give each the same number, by CUDA_VISIBLE_DEVICES, "
            "JAX_NUM_CPU_DEVICES or a launcher's option"
        )


def on_host(array: jax.Array | np.ndarray) -> np.ndarray:
    """The whole array; all processes that have parts of it must ask for it."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return np.asarray(array)
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def broadcast_from_first_process(
    array: jax.Array | np.ndarray, processes: int
) -> np.ndarray:
    """The array of process 0, on every process; one over all processes is its own."""
    host = on_host(array)
    if processes == 1:
        return host
    return np.asarray(multihost_utils.broadcast_one_to_all(host))
