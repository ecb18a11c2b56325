"""DeepSqueeze: gossip of compressed models, with error feedback and no copies.

Source: Tang et al. 2019 (DeepSqueeze), algorithm 1. With the weights W, the optimizer's
update u_i, a compressor C, the step eta, and e_i = 0 at the start:

    v_i = x_i + u_i + e_i
    c_i = C(v_i)                                  (sent to the neighbours)
    e_i = v_i - c_i
    x_i = x_i + u_i + eta sum_j W_ij (c_j - c_i)

What travels is the whole model, so that C must be better, or eta smaller, than where a
change travels (`gossip` with a compressor); but no neighbour's copy is kept. The mean
model moves by the mean update. Without loss and with eta 1 this is `gossip`.

Cost: the payload to each neighbour. State: e, of the params' size, in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax.compression import Compressor
from relaxjax.decentralized._coded_round import (
    check_step_size,
    checked_codec,
    consensus_step,
    exchange_encoded,
    initial_key,
    require_codable,
)
from relaxjax.decentralized._round import (
    as_float32,
    gossip_spec,
    gossip_transformation,
    zeros_like,
)
from relaxjax.topology import Topology

_CALLER = "deep_squeeze"


class DeepSqueezeState(NamedTuple):
    """What `deep_squeeze` keeps.

    Attributes:
      residual: e_i, float32, like the params.
      words: uint32[2], equal on all workers, of random compressors; else ().
    """

    residual: Annotated[Any, MEAN]
    words: Annotated[Any, EQUAL]


def deep_squeeze(
    axis_name: AxisName,
    topology: Topology,
    compressor: Compressor,
    *,
    consensus_step_size: float = 0.4,
    every: int = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Gossip in codes that keeps one residual instead of copies of the neighbours.

    Put it last in the chain, as `gossip`.

    Args:
      axis_name: the workers' axis.
      topology: of one round.
      compressor: C, without feedback: it has its own here.
      consensus_step_size: eta, in (0, 1].
      every: steps that a round takes; all but the last send nothing.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.
      seed: of random compressors.

    Returns:
      A gradient transformation, as of `gossip`.

    Raises:
      TypeError: as of `gossip`.
      ValueError: a compressor with feedback or over several rounds, an eta outside
        (0, 1]; else as of `gossip`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> from relaxjax import compression, topology
      >>> squeeze = relaxjax.deep_squeeze(
      ...     "data", topology.ring(3), compression.identity(), consensus_step_size=1.0
      ... )
      >>> tx = optax.chain(optax.sgd(1.0), squeeze)
      >>> update = lambda g: tx.update(g, tx.init(0 * g), 0 * g)[0]
      >>> print(jax.vmap(update, axis_name="data")(jnp.array([1.0, 2.0, 6.0])).round(2))
      [-3. -3. -3.]
    """
    mixing = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    codec = checked_codec(mixing, compressor)
    check_step_size(_CALLER, consensus_step_size)

    def start(params: optax.Params) -> Any:
        require_codable(mixing, codec, params)
        return DeepSqueezeState(zeros_like(params), initial_key(codec, seed))

    def rule(updates: Any, params: Any, kept: Any, step: jax.Array) -> Any:
        x, u = as_float32(mixing, params, updates)
        v = jax.tree.map(lambda x, u, e: x + u + e, x, u, kept.residual)
        c, words = exchange_encoded(mixing, codec, v, kept.words, step)
        due = mixing.due(step)
        residual = jax.tree.map(
            lambda v, c, e: jnp.where(due, v - c, e), v, c[0], kept.residual
        )
        moved = jax.tree.map(
            lambda u, change: u + consensus_step_size * change,
            u,
            consensus_step(mixing, c),
        )
        return moved, DeepSqueezeState(residual, words)

    return gossip_transformation(mixing, start, rule)
