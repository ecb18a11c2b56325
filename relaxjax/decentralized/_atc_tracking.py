"""ATC tracking: estimates of the mean gradient, sent while gradients are computed.

Source: Di Lorenzo and Scutari 2016 (NEXT). With weights W, the gradient g_i of this
step and g_i' of the one before, and y_i (both 0 at the start):

    y_i <- sum_j W_ij y_j + g_i - g_i'

The mean of y is always the mean of g. `gossip` afterwards keeps the models together:
x_i <- sum_j W_ij (x_j - lr y_j). `gradient_tracking` mixes what is added as well, and
so follows W y_i of here: it is one mixing ahead, and waits for the gradient with it.

Cost: that of `gossip`, once more, of which half depends on no gradient of this step.
State: y and g', of the params' size each.
"""

from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax.decentralized._gradient_tracking import tracker
from relaxjax.decentralized._spec import gossip_spec
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "atc_tracking"


def atc_tracking(
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
      ...     relaxjax.atc_tracking("data", ring),
      ...     optax.sgd(0.1),
      ...     relaxjax.gossip("data", ring),
      ... )
      >>> update = lambda g: tx.update(g, tx.init(g), jnp.zeros(()))[0]
      >>> print(jax.vmap(update, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [-0.3 -0.3 -0.3]
    """
    spec = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    return tracker(spec, lambda y, moved, mixed: optax.tree.add(mixed(y), moved))
