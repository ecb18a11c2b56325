"""A place for what another relaxation still owes.

    u_t = g_t + e,  e <- 0          (e: what `plan.taken_over` has put there; else 0)

u goes into the transformation. So the update after the change brings what residuals of
the one before held back:

    sum of u = sum of g + what was owed

Cost: one buffer of a gradient's size, read and written in each step. A transformation
with a residual of its own needs none.
"""

from typing import Annotated, Any, NamedTuple

import jax
import optax

from relaxjax._core._arrays import require_arrays
from relaxjax._core._checks import require_transformation
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._owed import OWED
from relaxjax._core._tree import widened
from relaxjax._core._weights import refuse_weight
from relaxjax._core.traced._marks import of_own_state

_CALLER = "plan.with_arrears"


class ArrearsState(NamedTuple):
    """State of `with_arrears`.

    Attributes:
      owed: e, float32 where the params are narrower; zeros but after a change.
      inner_state: the transformation's.
    """

    owed: Annotated[Any, MEAN, OWED]
    inner_state: optax.OptState


def with_arrears(
    tx: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """A transformation whose next update brings what an earlier one still owed.

    Experimental: this may change in any release.

    For `plan.taken_over`, which puts there what residuals have held back, where the
    transformation keeps no residual in which it could lie. Updates keep their dtypes.

    Args:
      tx: the whole transformation, such as a chain of a reducer and an optimizer.

    Returns:
      A gradient transformation.

    Raises:
      ValueError: `update` is given a `weight`, which would be that of another batch.

    Example:
      >>> import jax.numpy as jnp, optax
      >>> from relaxjax import plan
      >>> tx = plan.with_arrears(optax.sgd(1.0))
      >>> state = tx.init(jnp.zeros(2))._replace(owed=jnp.array([3.0, 0.0]))
      >>> for _ in range(2):
      ...     updates, state = tx.update(jnp.ones(2), state)
      ...     print(updates)
      [-4. -1.]
      [-1. -1.]
    """
    require_transformation(_CALLER, "tx", tx)
    inner = optax.with_extra_args_support(tx)

    def init(params: optax.Params) -> Any:
        require_arrays(params, _CALLER)
        nothing = widened(optax.tree.zeros_like(params))
        return ArrearsState(nothing, inner.init(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        refuse_weight(weight, _CALLER)
        nothing = optax.tree.zeros_like(state.owed)
        all_of_it = jax.tree.map(
            lambda g, e: (g + e).astype(g.dtype), updates, state.owed
        )
        out, inside = inner.update(all_of_it, state.inner_state, params, **extra_args)
        return out, ArrearsState(nothing, inside)

    return of_own_state(_CALLER, init, update)
