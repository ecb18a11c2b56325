"""Params that lie at the servers: a worker holds a slice [c] of every leaf, no more."""

from collections.abc import Mapping
from typing import Any

import jax
import optax

from relaxjax._core._arrays import require_dtypes
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_transformation
from relaxjax._core.traced._extra_args import giving
from relaxjax.collectives import cut, of_a_worker, whole_leaves
from relaxjax.gradients import require_elementwise, require_same_by_slice
from relaxjax.ps._refusals import check_servers, number_of_servers
from relaxjax.workers import init_state, require_agreement, workers_of

_CALLER = "ps.init"


def init(
    optimizer: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    servers: int | None = None,
    extra_args: Mapping[str, Any] | None = None,
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
      extra_args: arrays (or their shapes and dtypes) and functions that the optimizer's
        `update` needs beside gradients and params, by name.

    Returns:
      `(shards, opt_state)` for `relaxjax.data_parallel`: the tree of params with a
      `Shard` of value [n, c] for each leaf, and the optimizer's state for it.

    Raises:
      TypeError: `mesh` is not a mesh.
      ValueError: leaves are not floating, the optimizer is not elementwise or looks at
        the shapes of leaves, the number of servers does not divide the workers' or
        exceeds the leaves', or processes disagree.

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
    require_transformation("ps.init", "optimizer", optimizer)
    check_servers(_CALLER, servers)
    workers = workers_of(mesh, axis_name, _CALLER)
    *_, name = workers.axis_name
    across = workers.mesh.shape[name]
    leaves = len(jax.tree.leaves(params))
    with giving(extra_args):
        require_agreement(optimizer, params, workers, extra_args)
        require_dtypes(params, _CALLER, None)
        require_elementwise(optimizer, params, _CALLER)
        k = number_of_servers(_CALLER, name, servers, across, leaves)
        shards = cut(params, workers, k)
        require_same_by_slice(optimizer, params, of_a_worker(shards), _CALLER)
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
    return whole_leaves("ps.whole", shards)
