"""Params of which a worker holds a slice [c] of every leaf, and nothing more.

A leaf of d elements is cut into k slices of c = ceil(d / k), the last filled with
zeros; worker i has slice i mod k. A leaf that stacks the params of some layers, as a
`lax.scan` takes them, is cut layer by layer: then a slice is [layers, c].
"""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._merge_rules import MergeRule
from relaxjax._core._tree import leaf_name, wide
from relaxjax.workers import WorkerMesh, broadcast_from_first_process, put


def _held(shard: "Shard") -> tuple[int, tuple[int, ...]]:
    return shard.servers, shard.shape


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["value"],
    meta_fields=["shape", "servers"],
)
@dataclasses.dataclass(frozen=True)
class Shard:
    """A worker's slice of a leaf; a pytree node of one array.

    Attributes:
      value: [c], with c = ceil(size / servers), or [layers, c]; as worker state
        [n, c] or [n, layers, c].
      shape: shape of the whole leaf, of one layer.
      servers: number of slices that the leaf is cut into.
    """

    value: Annotated[Any, MergeRule("shard", slices=_held)]
    shape: tuple[int, ...]
    servers: int

    @property
    def size(self) -> int:
        """Number of elements of the whole leaf, of one layer."""
        return math.prod(self.shape)

    def joined(self) -> jax.Array:
        """The leaf of the slices [n, .., c] of all workers, on one device.

        Where there are several copies of each slice, as islands have, it is their mean.
        """
        join = functools.partial(_joined, shape=self.shape, k=self.servers)
        sharding = getattr(self.value, "sharding", None)  # NumPy's arrays have none
        if not (
            isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh)
        ):
            return join(self.value)
        everywhere = NamedSharding(sharding.mesh, P())
        return jax.jit(join, out_shardings=everywhere)(self.value).addressable_data(0)


def is_shard(x: Any) -> bool:
    """Whether it is a `Shard`; for `is_leaf`."""
    return isinstance(x, Shard)


def cut(params: Any, workers: WorkerMesh, k: int, stacked: Iterable[str] = ()) -> Any:
    """Worker state with a `Shard` for each leaf, in k slices; process 0's values.

    Leaves whose name begins with one of `stacked` have an axis of layers.
    """
    prefixes = tuple(stacked)

    def slices(path: Any, leaf: Any) -> Shard:
        host = broadcast_from_first_process(leaf, workers.processes)
        name = leaf_name(path)
        layered = any(name == x or name.startswith(f"{x}/") for x in prefixes)
        layers, shape = host.shape[:layered], host.shape[int(layered) :]
        flat = host.reshape(*layers, math.prod(shape))
        padding = [(0, 0)] * len(layers) + [(0, -flat.shape[-1] % k)]
        rows = np.pad(flat, padding).reshape(*layers, k, -1)
        rows = np.moveaxis(rows, -2, 0)[np.arange(workers.n) % k]
        return Shard(put(rows, workers, P()), shape, k)

    return jax.tree.map_with_path(slices, params)


def of_a_worker(shards: Any) -> Any:
    """Shapes and dtypes of what each worker has of worker state."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shards)


def whole_leaves(caller: str, shards: Any) -> Any:
    """The tree of params, joined from the slices of all workers."""
    if not any(map(is_shard, jax.tree.leaves(shards, is_leaf=is_shard))):
        room = caller.partition(".")[0]
        raise ValueError(
            f"{caller}: the tree has no Shard; pass what relaxjax.{room}.init gave, or "
            "relaxjax.consensus(params) for params that every worker has whole"
        )

    def join(x: Any) -> Any:
        return x.joined() if is_shard(x) else x

    return jax.tree.map(join, shards, is_leaf=is_shard)


def _joined(x: jax.Array, shape: tuple[int, ...], k: int) -> jax.Array:
    copies = x.reshape(len(x) // k, k, *x.shape[1:])
    y = copies.astype(wide(x.dtype))
    rows = (y[0] + jnp.mean(y - y[:1], axis=0)).astype(x.dtype)
    rows = jnp.moveaxis(rows, 0, -2)
    layers, size = rows.shape[:-2], math.prod(shape)
    flat = rows.reshape(*layers, k * rows.shape[-1])
    return flat[..., :size].reshape(*layers, *shape)
