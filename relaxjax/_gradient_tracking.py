"""Gradient tracking: each worker follows the mean gradient of all, by gossip.

Sources: Di Lorenzo and Scutari 2016, Nedic et al. 2017. With weights W, the gradient
g_i of this step and g_i' of the one before, and y_i (both 0 at the start):

    y_i <- sum_j W_ij (y_j + g_j - g_j')

The mean of y is the mean of g, always; each y_i comes near it, however the workers'
data differ. `gossip` afterwards keeps the models together: x_i <- sum_j W_ij (x_j - lr
y_j).

Cost: of `gossip`, once more. State: y and g', of the params' size each.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._layout import layout_of, require_same
from relaxjax._local import LocalState
from relaxjax._mixing import Mixing, checked_mixing, first_step, widened
from relaxjax._weights import refuse_weight
from relaxjax.topology import Topology

_CALLER = "gradient_tracking"


class GradientTrackingState(NamedTuple):
    """State of `gradient_tracking`.

    Attributes:
      step: int32, counted around; equal on all workers.
      tracked: y_i, float32 where a param is narrower, like the params.
      gradient: g_i of the last step, the same.
      leaves: those that differ between workers.
    """

    step: jax.Array
    tracked: Any
    gradient: Any
    leaves: LocalState


def gradient_tracking(
    axis_name: str,
    topology: Topology,
    *,
    every: int = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Replaces each worker's gradient by its estimate of the mean gradient.

    Put it before the optimizer, and `gossip` with the same topology after it.

    Args:
      axis_name: the workers' axis.
      topology: of `relaxjax.topology`; its rounds take turns.
      every: steps that a round takes; all but the last send nothing.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.

    Returns:
      A gradient transformation; updates keep their dtypes.

    Raises:
      TypeError: as of `gossip`.
      ValueError: as of `gossip`; params are not needed.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> ring = relaxjax.topology.ring(3)
      >>> tx = optax.chain(
      ...     relaxjax.gradient_tracking("data", ring),
      ...     optax.sgd(0.1),
      ...     relaxjax.gossip("data", ring),
      ... )
      >>> update = lambda g: tx.update(g, tx.init(g), jnp.zeros(()))[0]
      >>> print(jax.vmap(update, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [-0.3 -0.3 -0.3]
    """
    mixing = checked_mixing(
        Mixing(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    )

    def init(params: optax.Params) -> Any:
        y, g = (jax.tree.map(jnp.zeros_like, widened(params)) for _ in range(2))
        return GradientTrackingState(first_step(), y, g, LocalState(layout_of(params)))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del params, extra_args
        refuse_weight(weight, _CALLER)
        require_same(state.leaves.layout, updates, _CALLER)
        g = widened(updates)
        y = jax.tree.map(
            lambda y, g, last: y + (g - last), state.tracked, g, state.gradient
        )
        y = jax.tree.map(jnp.add, y, mixing.change(y, state.step))
        out = jax.tree.map(lambda y, u: y.astype(u.dtype), y, updates)
        step = mixing.next_step(state.step)
        return out, GradientTrackingState(step, y, g, state.leaves)

    return optax.GradientTransformationExtraArgs(init, update)
