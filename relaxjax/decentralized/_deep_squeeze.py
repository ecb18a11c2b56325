"""DeepSqueeze: gossip of compressed models, with error feedback and no copies.

Source: Tang et al. 2019 (DeepSqueeze), algorithm 1. With the weights W, the optimizer's
update u_i, a compressor C, the step eta, and e_i = 0 at the start:

    v_i = x_i + u_i + e_i
    c_i = C(v_i)                                  (sent to the neighbors)
    e_i = v_i - c_i
    x_i = x_i + u_i + eta sum_j W_ij (c_j - c_i)

What travels is the whole model, so that C must be better, or eta smaller, than where a
change travels (`gossip` with a compressor); but no neighbor's copy is kept. The mean
model moves by the mean update. Without loss and with eta 1 this is `gossip`.

Cost: the payload to each neighbor. State: e, of the params' size, in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax._core._tree import widened
from relaxjax.compression import Compressor
from relaxjax.decentralized._coded_round import check_step_size, coded_round
from relaxjax.decentralized._round import gossip_transformation
from relaxjax.decentralized._spec import gossip_spec
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "deep_squeeze"


class DeepSqueezeState(NamedTuple):
    """State of `deep_squeeze`.

    Attributes:
      residual: e_i, float32, like the params.
      words: uint32[2], equal on all workers, if the compressor is random; else ().
    """

    residual: Annotated[Any, MEAN]
    words: Annotated[Any, EQUAL]


def deep_squeeze(
    axis_name: AxisName,
    topology: Topology,
    compressor: Compressor,
    *,
    consensus_step_size: float = 0.4,
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Gossip in codes that keeps one residual instead of copies of the neighbors.

    Put it last in the chain, like `gossip`.

    Args:
      axis_name: the workers' axis.
      topology: a topology of one round.
      compressor: C, without feedback: the method has its own.
      consensus_step_size: eta, in (0, 1].
      every: the number of steps that a round takes; only the last one sends. Or a
        schedule of `relaxjax.periods`, which is asked after each round.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.

    Returns:
      A gradient transformation, as in `gossip`.

    Raises:
      TypeError: what `gossip` refuses.
      ValueError: a compressor with feedback, a topology of several rounds, an eta
        outside (0, 1]; what `gossip` refuses.
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
    spec = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    coded = coded_round(spec, compressor)
    check_step_size(_CALLER, consensus_step_size)

    def start(params: optax.Params) -> Any:
        coded.require_codable(params)
        residual = optax.tree.zeros_like(widened(params))
        return DeepSqueezeState(residual, coded.initial_key(seed))

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        x, u = spec.as_float32(params, updates)
        e = memory.residual
        v = jax.tree.map(lambda x, u, e: x + u + e, x, u, e)
        c, words = coded.exchange_encoded(v, memory.words, step)
        e = optax.tree.where(spec.is_round_due(step), optax.tree.sub(v, c[0]), e)
        change = coded.consensus_step(c)
        moved = jax.tree.map(lambda u, c: u + consensus_step_size * c, u, change)
        return moved, DeepSqueezeState(e, words)

    return gossip_transformation(spec, start, rule)
