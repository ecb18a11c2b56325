"""Params that lie at the servers: a worker holds a slice [c] of every leaf, no more."""

import dataclasses
import functools
import math
from typing import Annotated, Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_dtypes
from relaxjax._core._merge_rules import Leaf, MergeRule, resliced
from relaxjax.ps._refusals import check_servers, number_of_servers, require_elementwise
from relaxjax.workers import (
    broadcast_from_first_process,
    init_state,
    put,
    require_agreement,
    workers_of,
)

_CALLER = "ps.init"


def _at_other_servers(leaf: Leaf, rows: np.ndarray) -> np.ndarray:
    """Cuts anew the first slices, which hold all elements; the rest repeat them."""
    width = max(1, rows.shape[-1])
    return resliced(leaf, rows, -(-leaf.node.size // width), leaf.node.servers)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["value"],
    meta_fields=["shape", "servers"],
)
@dataclasses.dataclass(frozen=True)
class Shard:
    """A server's slice of a leaf; a pytree node of one array.

    Attributes:
      value: [c], with c = ceil(size / servers); as worker state [n, c].
      shape: shape of the whole leaf.
      servers: number of slices that the leaf is cut into.
    """

    value: Annotated[Any, MergeRule("shard", _at_other_servers)]
    shape: tuple[int, ...]
    servers: int

    @property
    def size(self) -> int:
        """Number of elements of the whole leaf."""
        return math.prod(self.shape)


def is_shard(x: Any) -> bool:
    """Whether it is a `Shard`; for `is_leaf`."""
    return isinstance(x, Shard)


def init(
    optimizer: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    servers: int | None = None,
) -> tuple[Any, Any]:
    """Gives every worker its slice of the params, and the optimizer's state for it.

    Args:
      optimizer: an elementwise optimizer, such as `optax.adamw`; the train step calls
        it on shards.
      params: a pytree of floating arrays, as for one device.
      mesh: a `jax.sharding.Mesh`, or `relaxjax.emulate(...)`.
      axis_name: the data-parallel axes; the last has the servers. None means all axes
        of the mesh.
      servers: the number of servers, see `relaxjax.parameter_server`.

    Returns:
      `(shards, opt_state)` for `relaxjax.data_parallel`: the tree of params with a
      `Shard` of value [n, c] for each leaf, and the optimizer's state for it.

    Raises:
      TypeError: `mesh` is not a mesh.
      ValueError: leaves are not floating, the optimizer is not elementwise, the number
        of servers does not divide the workers' or exceeds the leaves', or processes
        disagree.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> params = {"w": jnp.ones((3, 3))}
      >>> shards, state = relaxjax.ps.init(optax.sgd(0.1), params, relaxjax.emulate(4))
      >>> shards["w"].value.shape
      (4, 3)
      >>> print(relaxjax.ps.whole(shards)["w"])
      [[1. 1. 1.]
       [1. 1. 1.]
       [1. 1. 1.]]
    """
    check_servers(_CALLER, servers)
    workers = workers_of(mesh, axis_name, _CALLER)
    require_agreement(optimizer, params, workers)
    require_dtypes(params, _CALLER, None)
    require_elementwise(optimizer, params, _CALLER)
    *_, name = workers.axis_name
    across = workers.mesh.shape[name]
    leaves = len(jax.tree.leaves(params))
    k = number_of_servers(_CALLER, name, servers, across, leaves)

    def cut(leaf: Any) -> Shard:
        host = broadcast_from_first_process(np.asarray(leaf), workers.processes)
        rows = np.pad(host.ravel(), (0, -host.size % k)).reshape(k, -1)
        stacked = rows[np.arange(workers.n) % k]
        return Shard(put(stacked, workers, P()), host.shape, k)

    shards = jax.tree.map(cut, params)
    return shards, init_state(optimizer, shards, workers)


def whole(shards: Any) -> Any:
    """One model to evaluate or export, joined from the slices of all servers.

    Args:
      shards: worker state from `relaxjax.ps.init` or a step.

    Returns:
      The tree of params, as for one device.

    Raises:
      ValueError: the tree has no shards.
    """
    if not any(map(is_shard, jax.tree.leaves(shards, is_leaf=is_shard))):
        raise ValueError(
            "ps.whole: the tree has no Shard; pass what relaxjax.ps.init gave, or "
            "relaxjax.consensus(params) for params that every worker has whole"
        )

    def join(x: Any) -> Any:
        if not is_shard(x):
            return x
        return _joined(x.value, x.servers, x.size).reshape(x.shape)

    return jax.tree.map(join, shards, is_leaf=is_shard)


def _joined(value: jax.Array, servers: int, size: int) -> jax.Array:
    """The leaf [size] of slices [n, c], on one device."""
    sharding = value.sharding
    if not (isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh)):
        return value[:servers].ravel()[:size]
    everywhere = NamedSharding(sharding.mesh, P())
    join = jax.jit(lambda x: x[:servers].ravel()[:size], out_shardings=everywhere)
    return join(value).addressable_data(0)
