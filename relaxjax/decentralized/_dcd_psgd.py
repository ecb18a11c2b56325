"""DCD-PSGD: the models themselves are what neighbours know of each other.

Source: Tang et al. 2018 (difference compression), algorithm 1; on a ring with thirds
and 8 bits, BAGUA's low-precision decentralised SGD (Gan et al. 2021). With the weights
W, the optimizer's update u_i and a compressor C:

    h_i = sum_j W_ij x_j + u_i                    (of what is known of the neighbours)
    q_i = C(h_i - x_i)                            (sent to the neighbours)
    x_i = x_i + q_i,  and so at the neighbours

With `every` = k, u_i is the sum of the k updates since the last round, and x_i what was
known after it; in between a worker walks alone.

What C loses is lost: it must be mild (8 or 4 bits, unbiased is best). All workers start
from the same model, as `relaxjax.init` gives it.

Cost: the payload to each neighbour. State: the model of each neighbour and one's own,
in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import EQUAL, rebuild
from relaxjax.compression import Compressor
from relaxjax.decentralized._coded_round import (
    checked_codec,
    consensus_step,
    exchange_encoded,
    initial_key,
    merge_copies,
    num_copies,
    require_codable,
)
from relaxjax.decentralized._round import as_float32, gossip_spec, gossip_transformation
from relaxjax.topology import Topology

_CALLER = "dcd_psgd"


class DcdPsgdState(NamedTuple):
    """What `dcd_psgd` keeps.

    Attributes:
      known: x of this worker and then of the sender of each message, float32, like the
        params.
      words: uint32[2], equal on all workers, of random compressors; else ().
    """

    known: Annotated[list[Any], rebuild(merge_copies)]
    words: Annotated[Any, EQUAL]


def dcd_psgd(
    axis_name: AxisName,
    topology: Topology,
    compressor: Compressor,
    *,
    every: int = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Gossip whose models move by what neighbours were told, and by nothing else.

    Put it last in the chain, as `gossip`.

    Args:
      axis_name: the workers' axis.
      topology: of one round.
      compressor: C, mild and without feedback, such as
        `relaxjax.compression.min_max_uint8()`.
      every: steps that a round takes; all but the last send nothing.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.
      seed: of random compressors.

    Returns:
      A gradient transformation, as of `gossip`.

    Raises:
      TypeError: as of `gossip`.
      ValueError: a compressor with feedback or over several rounds; else as of
        `gossip`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> from relaxjax import compression, topology
      >>> codec = compression.min_max_uint8()
      >>> tx = optax.chain(
      ...     optax.sgd(1.0), relaxjax.dcd_psgd("data", topology.ring(3), codec)
      ... )
      >>> update = lambda g: tx.update(g, tx.init(0 * g), 0 * g)[0]
      >>> print(jax.vmap(update, axis_name="data")(jnp.array([1.0, 2.0, 6.0])).round(2))
      [-1. -2. -6.]
    """
    mixing = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    codec = checked_codec(mixing, compressor)

    def start(params: optax.Params) -> Any:
        require_codable(mixing, codec, params)
        known = [
            jax.tree.map(lambda x: jnp.array(x, jnp.float32), params)
            for _ in range(num_copies(mixing))
        ]
        return DcdPsgdState(known, initial_key(codec, seed))

    def rule(updates: Any, params: Any, kept: Any, step: jax.Array) -> Any:
        x, u = as_float32(mixing, params, updates)
        change, last = consensus_step(mixing, kept.known), kept.known[0]
        p = jax.tree.map(lambda x, u, c, last: x - last + u + c, x, u, change, last)
        q, words = exchange_encoded(mixing, codec, p, kept.words, step)
        known = jax.tree.map(jnp.add, kept.known, q)
        due = mixing.due(step)
        moved = jax.tree.map(
            lambda x, u, known: jnp.where(due, known - x, u), x, u, known[0]
        )
        return moved, DcdPsgdState(known, words)

    return gossip_transformation(mixing, start, rule)
