"""DCD-PSGD: the models themselves are what neighbors know of each other.

Source: Tang et al. 2018 (difference compression), algorithm 1; on a ring with thirds
and 8 bits, BAGUA's low-precision decentralized SGD (Gan et al. 2021). With the weights
W, the optimizer's update u_i and a compressor C:

    h_i = sum_j W_ij x_j + u_i                    (from the copies of the neighbors)
    q_i = C(h_i - x_i)                            (sent to the neighbors)
    x_i = x_i + q_i,  and so at the neighbors

With `every` = k, u_i is the sum of the k updates since the last round, and x_i the
model after that round; in between a worker goes its own way.

What C loses is lost: it must be mild (8 or 4 bits, unbiased is best). All workers start
from the same model, as `relaxjax.init` gives it.

Cost: the payload to each neighbor. State: the model of each neighbor and the worker's
own, in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import EQUAL, rebuild
from relaxjax._core._tree import wide_copy
from relaxjax.compression import Compressor
from relaxjax.decentralized._coded_round import coded_round, merge_copies
from relaxjax.decentralized._round import gossip_transformation
from relaxjax.decentralized._spec import gossip_spec
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "dcd_psgd"


class DcdPsgdState(NamedTuple):
    """State of `dcd_psgd`.

    Attributes:
      known: x of this worker, then of each message's sender, float32, like the params.
      words: uint32[2], equal on all workers, if the compressor is random; else ().
    """

    known: Annotated[list[Any], rebuild(merge_copies)]
    words: Annotated[Any, EQUAL]


def dcd_psgd(
    axis_name: AxisName,
    topology: Topology,
    compressor: Compressor,
    *,
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Gossip whose models move by what their neighbors hear, and by nothing else.

    Put it last in the chain, like `gossip`.

    Args:
      axis_name: the workers' axis.
      topology: a topology of one round.
      compressor: C, mild and without feedback, such as
        `relaxjax.compression.min_max_uint8()`.
      every: the number of steps that a round takes; only the last one sends. Or a
        schedule of `relaxjax.periods`, which is asked after each round.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.

    Returns:
      A gradient transformation, as in `gossip`.

    Raises:
      TypeError: what `gossip` refuses.
      ValueError: a compressor with feedback, a topology of several rounds; what
        `gossip` refuses.
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
    spec = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    coded = coded_round(spec, compressor)

    def start(params: optax.Params) -> Any:
        coded.require_codable(params)
        known = [wide_copy(params) for _ in range(coded.num_copies)]
        return DcdPsgdState(known, coded.initial_key(seed))

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        x, u = spec.as_float32(params, updates)
        change, last = coded.consensus_step(memory.known), memory.known[0]
        p = jax.tree.map(lambda x, u, c, last: x - last + u + c, x, u, change, last)
        q, words = coded.exchange_encoded(p, memory.words, step)
        known = jax.tree.map(jnp.add, memory.known, q)
        moved = optax.tree.where(
            spec.is_round_due(step), optax.tree.sub(known[0], x), u
        )
        return moved, DcdPsgdState(known, words)

    return gossip_transformation(spec, start, rule)
