"""Eager updates: outer gradients that arrive a round late, and one's own at once.

Source: Kale et al. 2025. Of n workers, at the end of a round of H local steps, with D_i
worker i's outer gradient, d_i that of the round before, and C a compressor with its
feedback or the identity:

    D_i = a_i - x_i
    E_i = D_i / n + (mean_j C(d_j) - d_i / n)     (the others' are a round old)
    a_i = a_i + O_i(E_i),  x_i = a_i
    d_i = D_i

What is sent in a round was known when the round began, so that on slow links the
exchange has a whole round's time. (In one program it is awaited in the step in which it
begins.) Nothing is lost: over all rounds the E_i add up to the means of the D, but for
the last, of which each has its own share.

What is a round old asks for a smaller outer rate than DiLoCo's: where local steps reach
their goal, D = a - goal, outer SGD(eta) of many workers gives e <- e - eta e_before,
which dies out only for eta < 1, and the slower the more momentum there is.

The workers' models differ by what they know of themselves alone: `relaxjax.consensus`
is their mean.

Cost: as of DiLoCo. State: that of DiLoCo, of which a_i and O_i's are each worker's own,
and d_i.
"""

from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
import optax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._merge_rules import Leaf, Merge, rebuild
from relaxjax.compression import Compressor
from relaxjax.local_updates._local_steps import local_steps
from relaxjax.local_updates._outer_step import AnchorState, outer_step

_CALLER = "eager_diloco"


def _still_to_come(leaf: Leaf, merge: Merge) -> np.ndarray:
    """The d whose part that is still to come, (1 - 1 / n) d, stays on the mean."""
    before, now = len(leaf.rows), len(leaf.fresh)
    if now == 1 < before:
        raise ValueError(
            f"resize: {leaf.name!r} of EagerDilocoState waits to be sent to others, "
            f"and one worker has none: of {before} workers' last round it would be "
            "lost. Resume on 2 workers or more; or start relaxjax.diloco anew from "
            "relaxjax.consensus(params)"
        )
    share = (1 - 1 / before) / (1 - 1 / now) if now > 1 else 0.0
    return merge(leaf, (share * leaf.rows).astype(leaf.rows.dtype))


class EagerDilocoState(NamedTuple):
    """What `eager_diloco` keeps from one outer step to the next.

    Attributes:
      outer: a_i, of the outer optimizer, of the reducer.
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
    sync_every: int,
    *,
    outer: optax.GradientTransformation | None = None,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """DiLoCo whose workers do not wait for each other's outer gradients.

    Args:
      inner: each worker's optimizer, of its own gradients.
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, number of steps from one outer step to the next, 1 or more.
      outer: as of `relaxjax.diloco`.
      compressor: as of `relaxjax.diloco`.
      algorithm: as of `relaxjax.all_reduce`.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.
      seed: of random compressors.

    Returns:
      A gradient transformation, as of `relaxjax.diloco`; models go on to differ.

    Raises:
      TypeError: in `init`: an outer optimizer that needs a loss or other arguments.
      ValueError: as of `relaxjax.diloco`.
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
    step = outer_step(
        _CALLER, axis_name, outer, compressor, algorithm, bucket_bytes, seed, specs
    )

    def start(params: optax.Params) -> EagerDilocoState:
        kept = step.init(params)
        return EagerDilocoState(kept, optax.tree.zeros_like(kept.anchor))

    def rule(gradient: Any, kept: EagerDilocoState) -> EagerDilocoState:
        n = axis_size(axis_name, _CALLER)
        known, old = kept
        mean, reduced = step.reducer.update(old, known.reducer)
        eager = jax.tree.map(lambda m, g, d: m + (g - d) / n, mean, gradient, old)
        return EagerDilocoState(
            step.along(eager, known._replace(reducer=reduced)), gradient
        )

    half = local_steps(sync_every, step, start, rule)
    return optax.with_extra_args_support(optax.chain(inner, half))
