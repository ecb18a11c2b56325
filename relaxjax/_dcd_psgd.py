"""DCD-PSGD: the models themselves are what neighbours know of each other.

Source: Tang et al. 2018 (difference compression), algorithm 1; on a ring with thirds
and 8 bits, BAGUA's low-precision decentralised SGD (Gan et al. 2021). With the weights
W, the optimizer's update u_i and a compressor C:

    h_i = sum_j W_ij x_j + u_i                    (of what is known of the neighbours)
    q_i = C(h_i - x_i)                            (sent to the neighbours)
    x_i = x_i + q_i,  and so at the neighbours

What C loses is lost: it must be mild (8 or 4 bits, unbiased is best). All workers start
from the same model, as `relaxjax.init` gives it.

Cost: the payload to each neighbour. State: the model of each neighbour and one's own,
in float32.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._all_reduce_checks import require_dtypes
from relaxjax._layout import layout_of
from relaxjax._local import LocalState
from relaxjax._mixing import Mixing, checked_mixing, first_step
from relaxjax._noise import words_of
from relaxjax._told import checked_codec, pull, told
from relaxjax.compression import Compressor
from relaxjax.topology import Topology

_CALLER = "dcd_psgd"


class DcdPsgdState(NamedTuple):
    """State of `dcd_psgd`.

    Attributes:
      step: int32, counted around; equal on all workers.
      known: x of this worker and then of the sender of each message, float32, like the
        params.
      words: uint32[2], equal on all workers, of random compressors; else ().
      leaves: those that differ between workers.
    """

    step: jax.Array
    known: list[Any]
    words: Any
    leaves: LocalState


def dcd_psgd(
    axis_name: str,
    topology: Topology,
    compressor: Compressor,
    *,
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
    mixing = checked_mixing(
        Mixing(_CALLER, axis_name, topology, 1, bucket_bytes, specs)
    )
    codec = checked_codec(mixing, compressor)
    copies = 1 + len(topology.messages())

    def init(params: optax.Params) -> Any:
        require_dtypes(params, _CALLER, compressor.name)
        known = [
            jax.tree.map(lambda x: jnp.array(x, jnp.float32), params)
            for _ in range(copies)
        ]
        words = words_of(seed) if codec.random else ()
        return DcdPsgdState(first_step(), known, words, LocalState(layout_of(params)))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        x, u = mixing.taken(updates, params, state.leaves, weight)
        p = jax.tree.map(jnp.add, u, pull(mixing, state.known))
        q, words = told(mixing, codec, p, state.words, state.step)
        known = jax.tree.map(jnp.add, state.known, q)
        moved = jax.tree.map(jnp.subtract, known[0], x)
        step = mixing.next_step(state.step)
        return moved, DcdPsgdState(step, known, words, state.leaves)

    return optax.GradientTransformationExtraArgs(init, update)
