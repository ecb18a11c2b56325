"""Gradient tracking: each worker follows the mean gradient of all, by gossip.

Sources: Di Lorenzo and Scutari 2016, Nedic et al. 2017. With weights W, the gradient
g_i of this step and g_i' of the one before, and y_i (both 0 at the start):

    y_i <- sum_j W_ij (y_j + g_j - g_j')

The mean of y is the mean of g, always; each y_i comes near it, however the workers'
data differ. `gossip` afterwards keeps the models together: x_i <- sum_j W_ij (x_j - lr
y_j).

Cost: of `gossip`, once more. State: y and g', of the params' size each.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import MEAN
from relaxjax.decentralized._round import (
    gossip_spec,
    gossip_transformation,
    widened,
    zeros_like,
)
from relaxjax.topology import Topology

_CALLER = "gradient_tracking"


class GradientTrackingState(NamedTuple):
    """What `gradient_tracking` keeps.

    Attributes:
      tracked: y_i, float32 where a param is narrower, like the params.
      gradient: g_i of the last step, the same.
    """

    tracked: Annotated[Any, MEAN]
    gradient: Annotated[Any, MEAN]


def gradient_tracking(
    axis_name: AxisName,
    topology: Topology,
    *,
    every: int = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Replaces each worker's gradient by its estimate of the mean gradient.

    Put it before the optimizer, and `gossip` with the same topology after it.

    Args:
      axis_name: the axis, or a tuple (outer, inner), as of `gossip`.
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
    mixing = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)

    def rule(updates: Any, params: Any, kept: Any, step: jax.Array) -> Any:
        del params
        g = widened(updates)
        y = jax.tree.map(
            lambda y, g, last: y + (g - last), kept.tracked, g, kept.gradient
        )
        y = jax.tree.map(jnp.add, y, mixing.change(y, step))
        out = jax.tree.map(lambda y, u: y.astype(u.dtype), y, updates)
        return out, GradientTrackingState(y, g)

    def start(params: optax.Params) -> Any:
        return GradientTrackingState(zeros_like(params), zeros_like(params))

    return gossip_transformation(mixing, start, rule)
