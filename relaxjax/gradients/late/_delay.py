"""Delay: a gradient waits some steps before it is used.

Source: one-step delayed averaging, as in hivemind's and BAGUA's asynchronous modes
(Gan et al. 2021), counted in steps: with delay T and this worker's gradient g_t,

    out_t = g_{t-T},  0 for t < T

Put it before a reducer: what is reduced was there before the step began, so that its
communication hides behind the forward and the backward pass. (A gradient that waits
after its reduction hides nothing.)

Cost: T gradients of this worker. Nothing is sent.
"""

from typing import Annotated, Any, NamedTuple

import optax

from relaxjax._core._arrays import require_dtypes, require_same
from relaxjax._core._checks import require_whole
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._owed import OWED_IN_TURN
from relaxjax._core._tree import Layout, layout_of
from relaxjax._core._weights import refuse_weight
from relaxjax._core.traced._marks import of_own_state

_CALLER = "delay"


class DelayState(NamedTuple):
    """State of `delay`.

    Attributes:
      waiting: the last T gradients of this worker, the oldest first; zeros at first.
      layout: the tree that `init` saw.
    """

    waiting: Annotated[tuple[Any, ...], MEAN, OWED_IN_TURN]
    layout: Layout


def delay(steps: int) -> optax.GradientTransformationExtraArgs:
    """Replaces the updates by those of `steps` steps ago.

    The first ones are zeros, which the optimizer sees as gradients; at the end of
    training the last ones are left in the state. Updates wait in the dtypes of the
    params and come out in their own.

    Args:
      steps: T, 0 or more; 0 is the identity.

    Returns:
      A gradient transformation; put it before `relaxjax.all_reduce`.

    Raises:
      ValueError: `steps` is not a whole number of 0 or more; in `update` another tree
        than `init` saw, or a `weight`, which would be that of another batch.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.delay(1)
      >>> state = tx.init(jnp.zeros(()))
      >>> for g in (1.0, 2.0, 3.0):
      ...     out, state = tx.update(jnp.float32(g), state)
      ...     print(out)
      0.0
      1.0
      2.0
    """
    require_whole(_CALLER, "steps", steps, 0)

    def init(params: optax.Params) -> Any:
        require_dtypes(params, _CALLER, None)
        zeros = (optax.tree.zeros_like(params) for _ in range(steps))
        return DelayState(tuple(zeros), layout_of(params))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        refuse_weight(weight, _CALLER)
        require_same(state.layout, updates, _CALLER)
        out, *waiting = (*state.waiting, updates)
        if waiting:
            out = optax.tree.cast_like(out, updates)
            waiting[-1] = optax.tree.cast_like(updates, state.waiting[-1])
        return out, DelayState(tuple(waiting), state.layout)

    return of_own_state(_CALLER, init, update)
