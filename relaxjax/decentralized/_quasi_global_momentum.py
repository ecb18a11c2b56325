"""Quasi-global momentum: gossip with the momentum of the models, not of gradients.

Source: Lin et al. 2021 (QG-DSGDm). A worker's own momentum follows its own data; the
direction in which its model moves, gossip included, is nearer to that of all. With
weights W, the optimizer's update u_i (plain SGD's, -lr g_i), beta the momentum and
b_i = 0 at the start:

    h_i = x_i + u_i + beta b_i
    x_i' = sum_j W_ij h_j
    b_i = beta b_i + (1 - beta) (x_i' - x_i)

The paper writes m = -b / lr. Written with b, the momentum stays that of the model when
the learning rate changes; with a constant rate both are the same.

Cost: that of `gossip`. State: b, of the params' size, in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_momentum
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._tree import widened
from relaxjax.decentralized._round import gossip_transformation
from relaxjax.decentralized._spec import gossip_spec
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "quasi_global_momentum"


class QuasiGlobalMomentumState(NamedTuple):
    """State of `quasi_global_momentum`.

    Attributes:
      way: b_i, float32 where a param is narrower, like the params.
    """

    way: Annotated[Any, MEAN]


def quasi_global_momentum(
    axis_name: AxisName,
    topology: Topology,
    *,
    momentum: float = 0.9,
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Gossip and momentum in one, for workers whose data differ.

    Put it last in the chain, like `gossip`, after an optimizer without momentum.

    Args:
      axis_name: the axis, or a tuple (outer, inner), as in `gossip`.
      topology: a topology of `relaxjax.topology`; its rounds take turns.
      momentum: beta, in [0, 1); with 0 this is `gossip`.
      every: the number of steps that a round takes; only the last one sends. Or a
        schedule of `relaxjax.periods`, which is asked after each round.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as in `gossip`.

    Raises:
      TypeError: what `gossip` refuses.
      ValueError: a momentum outside [0, 1); what `gossip` refuses.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> ring = relaxjax.topology.ring(3)
      >>> tx = optax.chain(
      ...     optax.sgd(1.0), relaxjax.quasi_global_momentum("data", ring)
      ... )
      >>> update = lambda g: tx.update(g, tx.init(g), jnp.zeros(()))[0]
      >>> print(jax.vmap(update, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [-3. -3. -3.]
    """
    spec = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    require_momentum(_CALLER, momentum)

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        x, u = spec.as_float32(params, updates)
        b = memory.way
        u = jax.tree.map(lambda u, b: u + momentum * b, u, b)
        h = jax.tree.map(jnp.add, x, u)
        moved = jax.tree.map(jnp.add, u, spec.change(h, step))
        b = jax.tree.map(lambda b, d: momentum * b + (1 - momentum) * d, b, moved)
        return moved, QuasiGlobalMomentumState(b)

    def start(params: optax.Params) -> QuasiGlobalMomentumState:
        return QuasiGlobalMomentumState(optax.tree.zeros_like(widened(params)))

    return gossip_transformation(spec, start, rule)
