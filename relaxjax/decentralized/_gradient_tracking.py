"""Gradient tracking: each worker follows the mean gradient of all, by gossip.

Sources: Di Lorenzo and Scutari 2016, Nedic et al. 2017. With weights W, the gradient
g_i of this step and g_i' of the one before, and y_i (both 0 at the start):

    y_i <- sum_j W_ij (y_j + g_j - g_j')

The mean of y is always the mean of g; each y_i comes near it, however the workers' data
differ. `gossip` afterwards keeps the models together: x_i <- sum_j W_ij (x_j - lr y_j).
Aug-DGM (or ATC-DIGing), as decent-bench 0.3.0 has it, begins with y_i = g_i: it is one
step of gossip, and then this. `atc_tracking` mixes y alone, and is one mixing behind.

Cost: that of `gossip`, once more. State: y and g', of the params' size each.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._tree import widened
from relaxjax.decentralized._round import GossipSpec, gossip_transformation
from relaxjax.decentralized._spec import gossip_spec
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "gradient_tracking"


class GradientTrackingState(NamedTuple):
    """State of `gradient_tracking` and `atc_tracking`.

    Attributes:
      tracked: y_i, float32 where a param is narrower, like the params.
      gradient: g_i of the last step, like y_i.
    """

    tracked: Annotated[Any, MEAN]
    gradient: Annotated[Any, MEAN]


def gradient_tracking(
    axis_name: AxisName,
    topology: Topology,
    *,
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Replaces each worker's gradient by its estimate of the mean gradient.

    Put it before the optimizer, and `gossip` with the same topology after it.

    Args:
      axis_name: the axis, or a tuple (outer, inner), as in `gossip`.
      topology: a topology of `relaxjax.topology`; its rounds take turns.
      every: the number of steps that a round takes; only the last one sends. Or a
        schedule of `relaxjax.periods`, which is asked after each round.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.

    Returns:
      A gradient transformation; updates keep their dtypes.

    Raises:
      TypeError: what `gossip` refuses.
      ValueError: what `gossip` refuses; params are not needed.
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
    spec = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    return tracker(spec, lambda y, moved, mixed: mixed(optax.tree.add(y, moved)))


Mixed = Callable[[Any], Any]
"""From a tree y to sum_j W_ij y_j."""


def tracker(
    spec: GossipSpec, estimate: Callable[[Any, Any, Mixed], Any]
) -> optax.GradientTransformationExtraArgs:
    """The transformation whose next y is `estimate(y, g - g', mixed)`."""

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        del params
        g = widened(updates)
        y, last = memory
        y = estimate(
            y,
            optax.tree.sub(g, last),
            lambda y: optax.tree.add(y, spec.change(y, step)),
        )
        return optax.tree.cast_like(y, updates), GradientTrackingState(y, g)

    def start(params: optax.Params) -> Any:
        zeros = [optax.tree.zeros_like(widened(params)) for _ in range(2)]
        return GradientTrackingState(*zeros)

    return gossip_transformation(spec, start, rule, "tracking")
