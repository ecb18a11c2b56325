"""Keys that differ between workers, and whose numbers part the models.

`relaxjax.to_workers` gives each worker a typed key of its own, as dropout needs it. An
optimizer's key that is used behind a reducer, as noise, must be the same on all: else
models part, though gradients are reduced. The first step is looked at, if its state has
keys that differ: they are followed to the params, as is a worker's own loss.

Cost: keys are compared on the host; a walk over the traced step where some differ.
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._phases import hosted
from relaxjax._core._tree import is_key, key_path
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._dependence import NOBODYS, Dependence, Own
from relaxjax.workers.followed._looked import Looked


def own_keys(state: Any, workers: WorkerMesh) -> dict[int, Own]:
    """Keys of which this process's workers have different ones, and along which axes.

    By the place of a leaf of the state; pairs (name of the leaf, axis).
    """
    flat, _ = jax.tree.flatten_with_path(hosted(state))
    keys = {i: (path, _rows(x)) for i, (path, x) in enumerate(flat) if _has_keys(x)}
    return {
        i: frozenset((key_path(path), axis) for axis in axes)
        for i, (path, rows) in keys.items()
        if (axes := _differs_along(rows, workers))
    }


def _has_keys(x: Any) -> bool:
    """Typed keys, or those of `jax.random.PRNGKey`, which are two numbers each."""
    if not isinstance(x, jax.Array):
        return False
    return is_key(x) or (x.shape[1:] == (2,) and x.dtype == jnp.uint32)


def _rows(keys: jax.Array) -> dict[int, bytes]:
    """The keys of each worker of this process."""
    data = jax.random.key_data(keys) if is_key(keys) else keys
    return {
        (shard.index[0].start or 0) + i: row.tobytes()
        for shard in data.addressable_shards
        for i, row in enumerate(np.asarray(shard.data))
    }


def _differs_along(rows: dict[int, bytes], workers: WorkerMesh) -> list[str]:
    found = []
    for place, axis in enumerate(workers.axis_name):
        others: dict[tuple[int, ...], set[bytes]] = {}
        for worker, row in rows.items():
            at = [int(x) for x in np.unravel_index(worker, workers.sizes)]
            others.setdefault((*at[:place], *at[place + 1 :]), set()).add(row)
        if any(len(different) > 1 for different in others.values()):
            found.append(axis)
    return found


def warn_of_own_keys(found: Looked, keys: dict[int, Own], workers: WorkerMesh) -> bool:
    """Warns where a worker's own key reaches its params; returns if it did."""
    if not keys:
        return False
    ins: list[Own] = [NOBODYS] * len(found.program.jaxpr.invars)
    for i, pairs in keys.items():
        ins[i] = pairs
    walk = Dependence(workers.axis_name)
    after = walk.steps(found.program, ins, range(found.states))
    by = [{name for name, _ in after[i]} for i in found.places]
    if parting := sorted(set.intersection(*by)) if by else []:
        warnings.warn(
            f"data_parallel: each worker has its own key {parting[0]!r}, and its "
            "numbers reach the params behind all relaxations, so that the models part, "
            "though gradients are reduced. Make an optimizer's state by relaxjax.init, "
            "or give it to workers by relaxjax.to_workers(..., same=True)",
            stacklevel=5,
        )
    return bool(parting)
