"""Quasi-global momentum: gossip with the momentum of the models, not of gradients.

Source: Lin et al. 2021 (QG-DSGDm). A worker's own momentum runs after its own data; the
way that its model goes, gossip included, is nearer to that of all. With weights W and
the optimizer's update u_i (plain SGD's, -lr g_i), beta the momentum, b_i = 0 at the
start:

    h_i = x_i + u_i + beta b_i
    x_i' = sum_j W_ij h_j
    b_i = beta b_i + (1 - beta) (x_i' - x_i)

The paper writes m = -b / lr. With b the momentum keeps the way that was gone when the
learning rate changes; with a constant rate both are one.

Cost: of `gossip`. State: b, of the params' size, in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_momentum
from relaxjax._core._merge_rules import MEAN
from relaxjax.decentralized._round import (
    as_float32,
    gossip_spec,
    gossip_transformation,
    zeros_like,
)
from relaxjax.topology import Topology

_CALLER = "quasi_global_momentum"


class QuasiGlobalMomentumState(NamedTuple):
    """What `quasi_global_momentum` keeps.

    Attributes:
      way: b_i, float32 where a param is narrower, like the params.
    """

    way: Annotated[Any, MEAN]


def quasi_global_momentum(
    axis_name: AxisName,
    topology: Topology,
    *,
    momentum: float = 0.9,
    every: int = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Gossip and momentum in one, for workers whose data differ.

    Put it last in the chain, as `gossip`, after an optimizer without momentum.

    Args:
      axis_name: the axis, or a tuple (outer, inner), as of `gossip`.
      topology: of `relaxjax.topology`; its rounds take turns.
      momentum: beta, in [0, 1); with 0 this is `gossip`.
      every: steps that a round takes; all but the last send nothing.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as of `gossip`.

    Raises:
      TypeError: as of `gossip`.
      ValueError: a momentum outside [0, 1); else as of `gossip`.
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
    mixing = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    require_momentum(_CALLER, momentum)

    def rule(updates: Any, params: Any, kept: Any, step: jax.Array) -> Any:
        x, u = as_float32(mixing, params, updates)
        own = jax.tree.map(lambda u, b: u + momentum * b, u, kept.way)
        half = jax.tree.map(jnp.add, x, own)
        moved = jax.tree.map(jnp.add, own, mixing.change(half, step))
        way = jax.tree.map(
            lambda b, d: momentum * b + (1 - momentum) * d, kept.way, moved
        )
        return moved, QuasiGlobalMomentumState(way)

    return gossip_transformation(
        mixing, lambda x: QuasiGlobalMomentumState(zeros_like(x)), rule
    )
