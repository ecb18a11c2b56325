"""A loss whose params lie at servers: pulled first, pushed as gradients appear.

Source: Hashemi et al. 2019 (TicTac); orders come from `relaxjax.schedule`.

    loss(shards, batch) = loss_fn(pull(shards), batch)
    its transpose:        the gradient of a slice is the mean over the workers of that
                          slice of the gradients, which is the push

Pulls wait for nothing but each other, so that the compiler may run the first layers
while later params are still under way; pushes wait for their gradient and each other,
so that the last layers' travel while the rest of the backward pass runs.

Cost: see `relaxjax.ps._servers`. At rest a worker holds a k-th of params and optimizer
state; within a step, the params and gradients that are in use.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax import lax

from relaxjax._core._arrays import require_no_compiler_axes
from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._sending_order import check_bucket_bytes
from relaxjax.collectives import (
    ExactTransfers,
    Kind,
    Shard,
    is_shard,
    plan_transfers,
    straight_through,
)
from relaxjax.ps._servers import Servers, servers_of

_CALLER = "ps.pulled"


def pulled(
    loss_fn: Callable[..., Any],
    axis_name: AxisName,
    *,
    order: Iterable[str] | None = None,
    bucket_bytes: int = 8 * 2**20,
) -> Callable[..., Any]:
    """A loss of the shards that servers hold.

    With `relaxjax.ps.init`, the train step stays as for one device but for this line,
    and equals one with `relaxjax.all_reduce` before the optimizer.

    Args:
      loss_fn: a loss called as `loss_fn(params, *args, **kwargs)`, with whole params.
      axis_name: the workers' axes, the same as in `relaxjax.ps.init`.
      order: leaf names in the order of pulls, such as
        `relaxjax.schedule.tac(relaxjax.schedule.Graph.from_function(loss_fn, params,
        batch))`; pushes leave in the reverse of it. None: natural order.
      bucket_bytes: most bytes of whole leaves that travel together; small transfers
        follow an order more closely, and pay a latency each.

    Returns:
      A function of shards and the same further arguments, whose gradient is the mean
      over the workers.

    Raises:
      ValueError: `bucket_bytes <= 0`; in a call: the order misses or repeats a leaf,
        params are not shards, or the compiler shards leaves.
      NameError: it is called outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> loss = relaxjax.ps.pulled(lambda w, x: jnp.sum((w - x) ** 2), "data")
      >>> def train_step(shards, opt_state, batch):
      ...     value, grads = jax.value_and_grad(loss)(shards, batch)
      ...     updates, opt_state = tx.update(grads, opt_state, shards)
      ...     return optax.apply_updates(shards, updates), opt_state, value
      >>> tx, mesh = optax.sgd(0.25), relaxjax.emulate(2)
      >>> shards, opt_state = relaxjax.ps.init(tx, jnp.zeros(3), mesh)
      >>> step = relaxjax.data_parallel(train_step, mesh)
      >>> shards, opt_state, _ = step(shards, opt_state, jnp.array([[2.0], [4.0]]))
      >>> print(relaxjax.ps.whole(shards))
      [1.5 1.5 1.5]
    """
    axes_of(axis_name)
    check_bucket_bytes(bucket_bytes)
    order = None if order is None else tuple(order)

    def loss(shards: Any, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten(shards, is_leaf=is_shard)
        at = _servers(leaves, axis_name)
        kinds = [Kind(x.shape, x.value.dtype) for x in leaves]
        plan = plan_transfers(tree.unflatten(kinds), order, bucket_bytes)
        transfers, own = ExactTransfers(at, plan), [x.value for x in leaves]
        pulled, _ = transfers.pull(lax.stop_gradient(own), kinds)
        params = straight_through(transfers.push, own, pulled)
        return loss_fn(tree.unflatten(params), *args, **kwargs)

    return loss


def _servers(leaves: list[Any], axis_name: AxisName) -> Servers:
    """The servers that the shards are made for; ValueError if they are not shards."""
    strangers = [x for x in leaves if not isinstance(x, Shard)]
    if strangers or not leaves:
        raise ValueError(
            f"{_CALLER}: the params are not shards"
            + (f" but {type(strangers[0]).__name__}" if strangers else " (none at all)")
            + ": make them with relaxjax.ps.init(optimizer, params, mesh), which gives "
            "every worker its slices"
        )
    require_no_compiler_axes(_CALLER, "sharding over servers")
    return servers_of(_CALLER, axis_name, leaves[0].servers, None)
