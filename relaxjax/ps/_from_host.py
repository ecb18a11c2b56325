"""A function of params that lie in host memory, copied to the device in an order.

Source: Hashemi et al. 2019 (TicTac), with host memory for the server and the bus for
the network; orders come from `relaxjax.schedule`.

    fn(copy(params), ..)    copy k waits for copy k - 1 and for nothing else, so that
                            layers compute while later params are under way
    its transpose           gradients are copied back in the reverse order, each as soon
                            as it exists and the one before has left

A barrier between each copy and the next orders them: XLA by itself copies in the order
of first use, whatever is written. On CPU host memory is the device's own: nothing is
copied, and there is nothing to order.

Cost: a step moves all params to the device, and of a loss all gradients back. What was
copied lives until its last use in the backward pass, so the device must have room for
all params at once; it needs none for optimizer state that lies in host memory.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import jax
from jax import lax
from jax.core import Tracer

from relaxjax._core._sending_order import check_bucket_bytes
from relaxjax._core._tree import leaf_name
from relaxjax.collectives import LeafTransfer, plan_transfers

Result = TypeVar("Result")
_HOST, _DEVICE = jax.memory.Space.Host, jax.memory.Space.Device
_KIND = "pinned_host"


def from_host(
    fn: Callable[..., Result],
    *,
    order: Iterable[str] | None = None,
    bucket_bytes: int = 8 * 2**20,
) -> Callable[..., Result]:
    """A function whose params lie in host memory, where `to_host` puts them.

    Experimental: this may change in any release.

    The gradient of a loss lies in host memory too, and so may what is made of it there.
    If `fn` is a whole train step, gradients and update stay on the device; its new
    params go back through `to_host`.

    Args:
      fn: a function called as `fn(params, *args, **kwargs)`, with params on the device.
      order: leaf names in the order of copies, such as
        `relaxjax.schedule.tac(relaxjax.schedule.Graph.from_loss(loss_fn, params,
        batch))`; gradients leave in the reverse of it. None: natural order.
      bucket_bytes: most bytes of leaves that are copied side by side; small transfers
        follow an order more closely, and pay a latency each.

    Returns:
      A function of the same arguments, to be called in a jitted step.

    Raises:
      ValueError: `bucket_bytes <= 0`; in a call: the order misses or repeats a leaf, or
        params do not lie in host memory.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> loss = relaxjax.ps.from_host(lambda w, x: jnp.sum((w - x) ** 2))
      >>> w = relaxjax.ps.to_host(jnp.zeros(3))
      >>> grads = jax.jit(jax.grad(loss))(w, jnp.ones(3))
      >>> print(grads, grads.sharding.memory_kind)
      [-2. -2. -2.] pinned_host
    """
    check_bucket_bytes(bucket_bytes)
    order = None if order is None else tuple(order)

    def on_device(params: Any, *args: Any, **kwargs: Any) -> Result:
        _require_host(params)
        plan = plan_transfers(params, order, bucket_bytes)
        leaves, tree = jax.tree.flatten(params)
        return fn(tree.unflatten(_copied(plan, leaves)), *args, **kwargs)

    return on_device


def to_host(tree: Any) -> Any:
    """Puts a tree into the host memory that devices copy from.

    Experimental: this may change in any release.

    Args:
      tree: a pytree of arrays, wherever they lie, also inside a jitted function.

    Returns:
      The same values, sharded as they were, in memory of kind "pinned_host".

    Raises:
      ValueError: a device has no such memory.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> print(relaxjax.ps.to_host(jnp.zeros(3)).sharding.memory_kind)
      pinned_host
    """
    for leaf in jax.tree.leaves(tree):
        if not isinstance(leaf, Tracer):
            _require_kind(leaf)
    return jax.device_put(tree, _HOST)


def _copied(
    plan: Sequence[LeafTransfer], leaves: Sequence[jax.Array]
) -> list[jax.Array]:
    """The leaves on the device, copied transfer after transfer."""
    copied = [x if x.size else jax.device_put(x, _DEVICE) for x in leaves]
    last: tuple[int, ...] = ()
    for transfer in plan:
        members = [leaves[i] for i in transfer.leaves]
        earlier = [copied[i] for i in last]
        members, earlier = lax.optimization_barrier((members, earlier))
        with jax.named_scope(f"pull {transfer.name};"):
            copies = jax.device_put(members, _DEVICE)
        for i, x in zip((*last, *transfer.leaves), (*earlier, *copies), strict=True):
            copied[i] = x
        last = transfer.leaves
    return copied


def _require_host(params: Any) -> None:
    """Refuses params on the device, which would not be copied, without a word."""
    for path, leaf in jax.tree.leaves_with_path(params):
        space = jax.typeof(leaf).memory_space
        if space != _HOST:
            raise ValueError(
                f"ps.from_host: leaf {leaf_name(path)!r} lies in memory of the "
                f"{space.name.lower()}: pass relaxjax.ps.to_host(params), and let a "
                "step return its params through to_host too"
            )


def _require_kind(leaf: Any) -> None:
    devices = leaf.devices() if isinstance(leaf, jax.Array) else jax.devices()[:1]
    for device in devices:
        kinds = [memory.kind for memory in device.addressable_memories()]
        if _KIND not in kinds:
            raise ValueError(
                f"ps.to_host: {device} has no memory of kind {_KIND!r}, but {kinds}: "
                "leave the params on the device, or let other processes hold them "
                "(benchmarks.testbed)"
            )
