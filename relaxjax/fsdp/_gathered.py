"""A loss, or a layer, whose params lie sharded: gathered for use, in codes if asked.

Source: ZeRO (Rajbhandari et al. 2020), stage 3; ZeRO++ (Wang et al. 2023): qwZ is
`weights=`, qgZ `gradients=`, hpZ `secondary=`; SDP4Bit (Jia et al. 2024) is
`relaxjax.fsdp.sdp4bit`.

    fn'(s, x) = fn(W(s), x)         with W of `relaxjax.fsdp._exchange`
    its transpose:                  the gradient of a slice is this worker's slice of
                                    the mean over all workers of the gradients at W

The gradient goes straight through the codes. Without codes this is plain FSDP, with the
numbers of an all-reduce before the same optimizer, but for rounding.

Cost: `relaxjax.fsdp.sent_bytes`. At rest a worker holds an n-th of params and optimizer
state; `difference` keeps the whole params besides, in float32, and feedback a residual
like the whole gradient.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._arrays import require_no_compiler_axes
from relaxjax._core._axis import AxisName, axes_of, axis_size
from relaxjax._core.traced._next_state import (
    CALLS,
    differentiated,
    named_next,
    refuse_twice,
)
from relaxjax.collectives import Kind, Shard, is_shard, plan_transfers, straight_through
from relaxjax.compression import Compressor
from relaxjax.fsdp._choices import Choices
from relaxjax.fsdp._exchange import KEPT, Exchange
from relaxjax.fsdp._gathered_state import GatheredState, carried, restored

_CALLER = "fsdp.gathered"
_TWICE = (
    "fsdp.gathered: a gradient in codes (gradients=) has no second derivative. Take "
    "the inner gradient with respect to inputs and not to params, or send gradients as "
    "they are (gradients=None)"
)


class Gathered:
    """A function of sharded params; made by `gathered`, and called as its `fn`."""

    def __init__(self, fn: Callable[..., Any], chosen: Choices):
        self.fn = fn
        self.choices = chosen

    def init(self, shards: Any) -> GatheredState:
        """The first state, inside the axes; see `relaxjax.fsdp.init_state`."""
        depths = {x.value.ndim for x in jax.tree.leaves(shards, is_leaf=is_shard)}
        if depths == {2}:
            layers = jax.tree.leaves(shards)[0].shape[0]
            state = jax.vmap(self.init)(shards)
            if not self.choices.random:
                return state
            numbers = jnp.arange(layers, dtype=jnp.float32)
            return state._replace(draw=state.draw.at[:, 0].set(numbers))
        exchange, own, _ = self.exchange(shards, ())
        chosen, known, owed = self.choices, (), ()
        if chosen.difference:
            known = tuple(exchange.exactly(own))
        if chosen.fed_back:
            assert chosen.gradients is not None
            start = chosen.gradients.feedback.init
            leaves = [jnp.zeros(kind.shape, kind.dtype) for kind in exchange.kinds]
            owed = tuple(carried(start(x)) for x in leaves)
        draw = jnp.zeros(2, jnp.float32) if chosen.random else ()
        return GatheredState(known, owed, draw)

    def __call__(
        self, shards: Any, *args: Any, state: Any = None, **kwargs: Any
    ) -> Any:
        """`fn` of the whole params, and the same further arguments."""
        state = self.checked(state)
        exchange, own, tree = self.exchange(shards, state.draw)

        def block(own: list[jax.Array], state: Any) -> Any:
            fetched = exchange.fetch(*lax.stop_gradient((own, state.known)))
            leaves = exchange.open(fetched)
            known = fetched if self.choices.difference else ()
            leaves = self.transposed(exchange, own, leaves, state, known)
            return self.fn(tree.unflatten(leaves), *args, **kwargs)

        if self.choices.reshard:
            policy = jax.checkpoint_policies.save_only_these_names(KEPT)
            block = jax.checkpoint(block, policy=policy)
        return block(own, state)

    def exchange(self, shards: Any, draw: Any) -> tuple[Exchange, list[Any], Any]:
        """How these shards travel, their values [c], and the structure of the tree."""
        leaves, tree = jax.tree.flatten(shards, is_leaf=is_shard)
        n = axis_size(self.choices.axes, _CALLER)
        _require_shards(leaves, n, self.choices.axes)
        require_no_compiler_axes(_CALLER, "sharding")
        kinds = [Kind(x.shape, x.value.dtype) for x in leaves]
        chosen = self.choices
        plan = plan_transfers(tree.unflatten(kinds), chosen.order, chosen.bucket_bytes)
        own = [x.value for x in leaves]
        return Exchange(chosen, plan, kinds, n, draw), own, tree

    def checked(self, state: Any) -> GatheredState:
        """The state, which must be there if something is kept."""
        if state is None and self.choices.stateful:
            raise ValueError(
                f"{_CALLER}: with {self._keeps()} something is kept from step to step: "
                "pass state=, made once by relaxjax.fsdp.init_state(loss, shards, "
                "mesh), and take the new one as the gradient with respect to it"
            )
        return GatheredState((), (), ()) if state is None else state

    def transposed(
        self,
        exchange: Exchange,
        own: list[jax.Array],
        leaves: list[jax.Array],
        state: GatheredState,
        known: Any,
    ) -> list[jax.Array]:
        """The leaves; their gradients scatter, and the state's is the next state."""

        def push(gradients: Any, kept: Any) -> tuple[list[jax.Array], GatheredState]:
            refuse_twice(_CALLER, taken, call)
            known, state = kept
            means, after = self.scattered(exchange, gradients, state, known)
            return means, named_next(after)

        # What is only read, as by microbatches before the last, may be read again.
        taken = state if self.choices.fed_back else differentiated(state)
        call = next(CALLS)
        kept = (known, lax.stop_gradient(state))
        once = "" if self.choices.gradients is None else _TWICE
        return straight_through(push, own, leaves, state, kept, once)

    def scattered(
        self, exchange: Exchange, gradients: Any, state: GatheredState, known: Any
    ) -> tuple[list[jax.Array], GatheredState]:
        """The slices of the mean gradients, and the state of the next step."""
        exchange = exchange._replace(draw=state.draw)
        owed = ()
        if self.choices.fed_back:
            assert self.choices.gradients is not None
            start = self.choices.gradients.feedback.init
            likes = [jax.eval_shape(start, kind) for kind in exchange.kinds]
            owed = tuple(map(restored, state.owed, likes))
        means, owed = exchange.scatter(gradients, owed)
        draw = state.draw
        if self.choices.random:
            draw = draw + jnp.array([0, 1], jnp.float32)
        return means, GatheredState(tuple(known), tuple(map(carried, owed)), draw)

    def _keeps(self) -> str:
        chosen = self.choices
        reasons = {
            "difference=True": chosen.difference,
            "feedback around gradients=": chosen.fed_back,
            "random codes": chosen.random,
        }
        return " and ".join(name for name, holds in reasons.items() if holds)


def gathered(
    fn: Callable[..., Any],
    axis_name: AxisName,
    *,
    weights: Compressor | None = None,
    gradients: Compressor | None = None,
    across: Compressor | None = None,
    secondary: str | None = None,
    difference: bool = False,
    reshard_after_forward: bool = False,
    order: Iterable[str] | None = None,
    bucket_bytes: int = 8 * 2**20,
    seed: int = 0,
) -> Gathered:
    """A loss, or one layer of a scan, of params that lie sharded over an axis (FSDP).

    Experimental: this may change in any release.

    Args:
      fn: called as `fn(params, *args, **kwargs)`, with whole params.
      axis_name: the axes that the params are sharded over, outermost (slowest) first;
        the mean of the gradients is over them.
      weights: compressor of the gathers, without feedback (ZeRO++'s qwZ:
        `compression.quantize(8, block_size=2048)`).
      gradients: compressor of the scatters, with `compression.error_feedback`,
        `compression.loco` or no feedback (qgZ: `compression.quantize(4)`); on two axes
        they travel in two hops, added up in float32 between them.
      across: compressor of the scatters over outer axes, without feedback, where
        `gradients` is for the inner one; None: `gradients` for all.
      secondary: the name of the inner axis, inside which a second copy of the weights
        is kept, as it has travelled, for the gather of the backward pass (hpZ), which
        then sends nothing over outer axes. Implies `reshard_after_forward`.
      difference: whether to send codes of the change since what was last communicated,
        which every worker keeps whole, in float32 (SDP4Bit).
      reshard_after_forward: whether the backward pass gathers again, so that gathered
        weights are not kept; by `jax.checkpoint`, so `fn` is computed again as well.
      order: leaf names in the order of gathers, such as `relaxjax.schedule.tac` gives;
        scatters leave in the reverse of it. None: natural order.
      bucket_bytes: most bytes of whole leaves that travel together. Each leaf is
        encoded by itself, so that this changes no number.
      seed: seed of random compressors. Two losses of one seed draw the same numbers:
        give each its own.

    Returns:
      A `Gathered`, called as `fn` with shards, whose gradient is the mean over the
      workers. With feedback, differences or random codes it takes `state=`, from
      `relaxjax.fsdp.init_state`, and the gradient with respect to it is the new state.
      Use a state once in a loss, outside scans and branches. JAX adds up the new states
      of several uses, and returns zeros if a branch skips the use. A `jax.vmap` over
      microbatches inside `fn` counts as one use.

    Raises:
      TypeError: `weights`, `gradients` or `across` is not a `Compressor`.
      ValueError: feedback that does not fit; `across` without two axes; `secondary` is
        not the inner of two axes; `difference` without `weights`, or with what gathers
        again; `bucket_bytes <= 0`;
        in a call: params are not shards of this axis, the order misses or repeats a
        leaf, `state=` is missing or used twice in one loss, or the compiler shards
        leaves.
      NameError: it is called outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> from relaxjax import compression, fsdp
      >>> loss = fsdp.gathered(lambda w, x: jnp.sum((w - x) ** 2), "data",
      ...                      weights=compression.quantize(8))
      >>> def train_step(shards, opt_state, batch):
      ...     value, grads = jax.value_and_grad(loss)(shards, batch)
      ...     updates, opt_state = tx.update(grads, opt_state, shards)
      ...     return optax.apply_updates(shards, updates), opt_state, value
      >>> tx, mesh = optax.sgd(0.25), relaxjax.emulate(2)
      >>> shards, opt_state = fsdp.init(tx, jnp.zeros(3), mesh)
      >>> step = relaxjax.data_parallel(train_step, mesh)
      >>> shards, opt_state, _ = step(shards, opt_state, jnp.array([[2.0], [4.0]]))
      >>> print(fsdp.whole(shards))
      [1.5 1.5 1.5]
    """
    chosen = Choices(
        axes=axes_of(axis_name),
        weights=weights,
        gradients=gradients,
        across=across,
        secondary=secondary,
        difference=difference,
        reshard=reshard_after_forward,
        order=order,
        bucket_bytes=bucket_bytes,
        seed=seed,
    )
    return Gathered(fn, chosen.checked(_CALLER, axis_name))


def _require_shards(leaves: list[Any], n: int, axes: tuple[str, ...]) -> None:
    strangers = [x for x in leaves if not isinstance(x, Shard)]
    if strangers or not leaves:
        raise ValueError(
            f"{_CALLER}: the params are not shards"
            + (f" but {type(strangers[0]).__name__}" if strangers else " (none at all)")
            + ": make them with relaxjax.fsdp.init(optimizer, params, mesh), which "
            "gives every worker its slices"
        )
    for x in leaves:
        if x.servers != n:
            raise ValueError(
                f"{_CALLER}: params are cut into {x.servers} slices, and {axes} has "
                f"{n} workers: give relaxjax.fsdp.init over={axes}"
            )
        if x.value.ndim != 1:
            raise ValueError(
                f"{_CALLER}: a leaf of shape {x.shape} has an axis of layers (its "
                f"slice is {x.value.shape}): call this in a lax.scan over them, or use "
                "relaxjax.fsdp.scan_layers"
            )
