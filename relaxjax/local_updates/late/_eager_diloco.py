"""Eager updates: outer gradients that arrive a round late, and one's own at once.

Source: Kale et al. 2025. For n workers, at the end of a round of H local steps, with
D_i worker i's outer gradient, d_i that of the round before, O_i its outer optimizer,
and C a compressor with its feedback or the identity:

    D_i = a_i - x_i
    E_i = D_i / n + (mean_j C(d_j) - d_i / n)     (the others' are a round old)
    a_i = a_i + O_i(E_i),  x_i = a_i
    d_i = D_i

What is sent in a round was known when the round began, so that on slow links the
exchange has a whole round's time. (In one program it is awaited in the step in which it
begins.) Nothing is lost: over all rounds the E_i add up to the means of the D, except
that of the last round each worker has its own share alone.

Outer gradients that are a round old need a smaller outer rate than DiLoCo's: where
local steps reach their goal, D = a - goal, the error e of outer SGD(eta) with many
workers goes e <- e - eta e_before, which dies out only for eta < 1, and the slower the
more momentum there is.

The workers' models differ by what each knows of itself alone: `relaxjax.consensus` is
their mean.

Cost: that of DiLoCo. State: that of DiLoCo, where a_i and O_i's state are each worker's
own, and d_i.
"""

from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
import optax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_transformation
from relaxjax._core._merge_rules import Leaf, Merge, rebuild
from relaxjax._core._weights import refuse_weight
from relaxjax._core.traced._marks import whole_method
from relaxjax.compression import Compressor
from relaxjax.local_updates.common._local_steps import ExchangeSpec, local_steps
from relaxjax.local_updates.periodic._diloco import AnchorState, outer_step
from relaxjax.periods import Period

_CALLER = "eager_diloco"


def _still_to_come(leaf: Leaf, merge: Merge) -> np.ndarray:
    """The d of new workers: the mean of (1 - 1 / n) d, still to be sent, stays."""
    before, now = leaf.copies
    if now == 1 < before:
        raise ValueError(
            f"resize: {leaf.name!r} of EagerDilocoState waits to be sent to others, "
            f"and one worker has no others: the last round of {before} workers would "
            "be lost. Resume on 2 workers or more; or start relaxjax.diloco anew from "
            "relaxjax.consensus(params)"
        )
    share = (1 - 1 / before) / (1 - 1 / now) if now > 1 else 0.0
    return merge(leaf, (share * leaf.rows).astype(leaf.rows.dtype))


class EagerDilocoState(NamedTuple):
    """What `eager_diloco` keeps from one outer step to the next.

    Attributes:
      outer: a_i, the outer optimizer's state, the reducer's.
      waiting: d_i, like a_i.
    """

    outer: AnchorState
    waiting: Annotated[Any, rebuild(_still_to_come)]

    @property
    def anchor(self) -> Any:
        """This worker's model of the last outer step."""
        return self.outer.anchor


def eager_diloco(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    sync_every: Period,
    *,
    outer: optax.GradientTransformation | None = None,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
    reducer: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    """DiLoCo whose workers do not wait for each other's outer gradients.

    Experimental: this may change in any release.

    Args:
      inner: each worker's optimizer, which sees its own gradients.
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, the number of steps from one outer step to the next, 1 or more; or
        a schedule of `relaxjax.periods`, which is asked after each of them.
      outer: see `relaxjax.diloco`.
      compressor: see `relaxjax.diloco`.
      algorithm: see `relaxjax.all_reduce`.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.
      reducer: see `relaxjax.diloco`.

    Returns:
      A gradient transformation, as in `relaxjax.diloco`, without `weight=`. The models
      differ, even after an outer step.

    Raises:
      TypeError: in `init`: an outer optimizer that needs a loss or other arguments.
      ValueError: what `relaxjax.diloco` refuses; in `update` a `weight`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = relaxjax.eager_diloco(optax.sgd(1.0), "data", 1, outer=optax.sgd(1.0))
      >>> def train(gradient):
      ...     x = jnp.float32(0)
      ...     state, seen = tx.init(x), []
      ...     for _ in range(2):
      ...         updates, state = tx.update(gradient, state, x)
      ...         x = optax.apply_updates(x, updates)
      ...         seen.append(x)
      ...     return jnp.stack(seen)
      >>> print(jax.vmap(train, axis_name="data")(jnp.array([2.0, 6.0])))
      [[-1. -5.]
       [-3. -7.]]
    """
    require_transformation("eager_diloco", "inner", inner)
    exchange = ExchangeSpec(
        _CALLER, axis_name, compressor, algorithm, bucket_bytes, specs, seed, reducer
    )
    step = outer_step(exchange, outer)

    def start(params: optax.Params) -> EagerDilocoState:
        state = step.init(params)
        return EagerDilocoState(state, optax.tree.zeros_like(state.anchor))

    def rule(gradient: Any, memory: EagerDilocoState, weight: Any) -> EagerDilocoState:
        refuse_weight(weight, _CALLER)
        n = axis_size(axis_name, _CALLER)
        state, before = memory
        mean, reducer = step.reducer.update(before, state.reducer)
        eager = jax.tree.map(lambda m, g, d: m + (g - d) / n, mean, gradient, before)
        state = step.apply_outer(eager, state._replace(reducer=reducer))
        return EagerDilocoState(state, gradient)

    outer_half = local_steps(exchange, sync_every, start, rule)
    return whole_method(_CALLER, inner, outer_half)
