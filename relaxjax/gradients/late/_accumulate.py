"""Gradient accumulation that communicates once per `every` steps.

Source: `backward_passes_per_step` of Horovod; `no_sync` of PyTorch DDP.

    a <- a + w_t u_t,  W <- W + w_t              (each step; both start as 0)
    out_t = tx(a / W),  a <- 0,  W <- 0          (each `every`-th step; else out_t = 0)

w_t is 1, or the `weight=` passed to `update` (a worker's number of examples), and then
`tx` is passed W; with W = 0, a / W is 0.

Cost: what `tx` sends, once in `every` steps, and one buffer of the updates' size. Under
`jax.vmap`, so in emulation, both branches run and one is selected: no time is saved.
`optax.MultiSteps` gives the same updates, but runs `tx` on every step and discards
the result, so it sends `every` times as much.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._arrays import require_arrays, require_same
from relaxjax._core._checks import require_known, require_transformation
from relaxjax._core._cond import in_dtypes_of, when
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import Layout, layout_of, wide
from relaxjax._core._weights import checked_weight, weigh
from relaxjax._core.traced._marks import of_own_state
from relaxjax._core.traced._silence import due


class AccumulateState(NamedTuple):
    """State of `accumulate`.

    Attributes:
      mini_step: int32, number of updates since the last one that `tx` saw.
      accumulated: their sum, per leaf, in float32 where the leaf is narrower.
      weight: float32 (a double in x64), the sum of their weights.
      inner_state: state of `tx`.
      layout: the tree that `init` saw.
    """

    mini_step: Annotated[jax.Array, EQUAL]
    accumulated: Annotated[optax.Updates, MEAN]
    weight: Annotated[jax.Array, MEAN]
    inner_state: optax.OptState
    layout: Layout


def accumulate(
    tx: optax.GradientTransformation, every: int
) -> optax.GradientTransformationExtraArgs:
    """Averages `every` successive updates and hands only their mean to `tx`.

    In between, the updates that come out are zeros, and `tx`, its collectives
    included, does not run at all.

    Args:
      tx: the transformation of the means, typically a reducer and an optimizer in a
        chain.
      every: number of mini-steps, at least 1.

    Returns:
      A gradient transformation. Shapes and dtypes of the updates stay.

    Raises:
      ValueError: `every < 1`, or in `update` another tree than `init` saw.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = relaxjax.accumulate(optax.sgd(1.0), every=2)
      >>> state = tx.init(jnp.zeros(()))
      >>> for gradient in [1.0, 3.0, 5.0]:
      ...     updates, state = tx.update(jnp.float32(gradient), state)
      ...     print(updates)
      0.0
      -2.0
      0.0
    """
    require_transformation("accumulate", "tx", tx)
    require_known("accumulate", "every", every)
    if not isinstance(every, int | np.integer) or every < 1:
        raise ValueError(
            f"accumulate: every={every!r} must be a whole number of mini-steps, 1 or "
            "more (1 communicates on each step)"
        )
    inner = optax.with_extra_args_support(tx)

    def init(params: optax.Params) -> Any:
        require_arrays(params, "accumulate")
        zeros = jax.tree.map(lambda p: jnp.zeros_like(p, wide(p.dtype)), params)
        empty = jnp.zeros((), jnp.int32), zeros, jnp.zeros((), float)
        return AccumulateState(*empty, inner.init(params), layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        require_same(state.layout, updates, "accumulate")
        w = checked_weight(1 if weight is None else weight, "accumulate: weight")
        total_weight = state.weight + w
        total = jax.tree.map(
            lambda a, u: a + weigh(u.astype(a.dtype), w), state.accumulated, updates
        )
        if weight is not None:
            extra_args["weight"] = total_weight
        divisor = jnp.where(total_weight == 0, 1, total_weight)

        def flush(before):
            _, total, inner_state = before
            mean = jax.tree.map(lambda a: a / divisor.astype(a.dtype), total)
            mean = optax.tree.cast_like(mean, updates)
            new, inner_state = inner.update(mean, inner_state, params, **extra_args)
            kept = in_dtypes_of(state.inner_state, inner_state)
            return new, optax.tree.zeros_like(total), kept

        step = state.mini_step
        last = due(step, every, since=step)  # or past it, if `every` was larger
        kind, _, _ = jax.eval_shape(flush, (None, total, state.inner_state))
        waiting = optax.tree.zeros_like(kind), total, state.inner_state
        new, total, inner_state = when(last, flush, waiting)
        mini_step = jnp.where(last, 0, step + 1)
        left = jnp.where(last, 0, total_weight)
        return new, AccumulateState(mini_step, total, left, inner_state, state.layout)

    return of_own_state("accumulate", init, update)
