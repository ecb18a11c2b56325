"""Skipped steps: all workers skip together when one sees a NaN or an infinity.

Source: the steps that mixed precision skips (Micikevicius et al. 2018), made common:

    bad = sum over workers of [some update, coming in or going out, is not finite]
    bad = 0: the updates and the state of `tx`;  else: zeros, and the state before.

A worker that skipped by itself (`optax.apply_if_finite` around a reducer) would leave
the others waiting in the collective forever. Here `tx` always runs, so its transfers
keep their place beside the backward pass, and the choice is a select after it.

Cost: one int32 more to all-reduce, and the select.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from relaxjax._core._axis import AxisName, axes_of, axis_size, varying
from relaxjax._core._checks import require_transformation
from relaxjax._core._cond import select_tree
from relaxjax._core._merge_rules import EQUAL
from relaxjax._core._weights import is_absent
from relaxjax._core.traced._marks import of_own_state
from relaxjax._core.traced._usual import usually


class SkipNonfiniteState(NamedTuple):
    """State of `skip_nonfinite`.

    Attributes:
      skipped: int32, number of steps that were skipped so far.
      inner_state: state of `tx`.
    """

    skipped: Annotated[jax.Array, EQUAL]
    inner_state: optax.OptState


def skip_nonfinite(
    tx: optax.GradientTransformation, axis_name: AxisName
) -> optax.GradientTransformationExtraArgs:
    """Wraps `tx`: a step with a NaN or infinity on any worker leaves no trace on any.

    Updates are zero in such a step, and all state of `tx` (moments, counters,
    residuals) stays as it was; `skipped` counts it. Updates that come in from a worker
    of weight zero (`update(..., weight=0)`) are taken for zeros if they are not finite:
    others go on, and so does what that worker holds for itself.

    Args:
      tx: a whole chain, reducer included.
      axis_name: the axis, or a tuple of axes.

    Returns:
      A gradient transformation.

    Raises:
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> chain = optax.chain(relaxjax.all_reduce("data"), optax.sgd(1.0))
      >>> tx = relaxjax.skip_nonfinite(chain, "data")
      >>> def update(gradient):
      ...     updates, state = tx.update(gradient, tx.init(gradient))
      ...     return updates, state.skipped
      >>> updates, skipped = jax.vmap(update, axis_name="data")(
      ...     jnp.array([1.0, jnp.nan, 2.0]))
      >>> print(updates, skipped)
      [0. 0. 0.] [1 1 1]
    """
    require_transformation("skip_nonfinite", "tx", tx)
    axes_of(axis_name)
    inner = optax.with_extra_args_support(tx)

    def init(params: optax.Params) -> Any:
        return SkipNonfiniteState(jnp.zeros((), jnp.int32), inner.init(params))

    def update(updates, state, params=None, **extra_args):
        axis_size(axis_name, "skip_nonfinite")
        if (weight := extra_args.get("weight")) is not None:
            updates = _unless_ill(updates, is_absent(weight))
        new, inner_state = inner.update(
            updates, state.inner_state, params, **extra_args
        )
        seen = _nonfinite(updates) | _nonfinite(new)
        bad = lax.psum(jnp.int32(seen), axis_name)
        with usually():
            ok = bad == 0
        new = jax.tree.map(lambda u: jnp.where(ok, u, jnp.zeros_like(u)), new)
        inner_state = select_tree(ok, inner_state, state.inner_state)
        skipped = state.skipped + jnp.where(ok, 0, 1)
        return new, SkipNonfiniteState(skipped, inner_state)

    return of_own_state("skip_nonfinite", init, update)


def _unless_ill(updates: Any, absent: jax.Array) -> Any:
    """Zeros where this worker is absent and holds what is not finite, such as 0/0."""
    ill = absent & _nonfinite(updates)

    def one(x: jax.Array) -> jax.Array:
        if varying(ill) - varying(x):
            return x  # equal on all workers, which a reducer refuses
        return jnp.where(ill, jnp.zeros_like(x), x)

    return jax.tree.map(one, updates)


def _nonfinite(tree: Any) -> jax.Array:
    finite = [
        jnp.all(jnp.isfinite(x))
        for x in jax.tree.leaves(tree)
        if jnp.issubdtype(x.dtype, jnp.inexact)
    ]
    return ~jnp.all(jnp.asarray(finite)) if finite else jnp.asarray(False)
