"""CHOCO-SGD: gossip in codes, with a public copy of each model at its neighbours.

Source: Koloskova, Stich, Jaggi 2019 (algorithm 2 and 6). Worker i and its neighbours
hold the same copy x^_i of its model (0 at the start); with the weights W, the
optimizer's update u_i, a compressor C and the step gamma:

    h_i  = x_i + u_i
    q_i  = C(h_i - x^_i)                          (sent to the neighbours)
    x^_j = x^_j + q_j                             (own, and of each neighbour)
    x_i  = h_i + gamma sum_j W_ij (x^_j - x^_i)

The copies at both ends of a link are the same to the bit: both add up what the same
payload says. Because weights are symmetric, the mean model moves by the mean update,
whatever is lost; and what is lost stays in h - x^, to be sent later.

Stable for a gamma that falls with what C loses; published for signs on a ring of 8:
0.45. Without loss and with gamma 1 this is `gossip`.

Cost: the payload to each neighbour (on a ring in signs 1/32 of `gossip`). State: a copy
of the model for each neighbour and one more, in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._merge_rules import EQUAL, rebuild
from relaxjax.compression import Compressor
from relaxjax.decentralized._coded_round import (
    check_step_size,
    checked_codec,
    consensus_step,
    exchange_encoded,
    initial_key,
    merge_copies,
    num_copies,
    require_codable,
)
from relaxjax.decentralized._round import (
    GossipSpec,
    as_float32,
    gossip_transformation,
    zeros_like,
)


class ChocoState(NamedTuple):
    """What `gossip` with a compressor keeps.

    Attributes:
      known: x^ of this worker and then of the sender of each message, float32, like
        the params.
      words: uint32[2], equal on all workers, of random compressors; else ().
    """

    known: Annotated[list[Any], rebuild(merge_copies)]
    words: Annotated[Any, EQUAL]


def choco(
    mixing: GossipSpec, compressor: Compressor, gamma: float, seed: int
) -> optax.GradientTransformationExtraArgs:
    """Gossip in codes.

    Args:
      mixing: how it gossips.
      compressor: C, without feedback.
      gamma: the step towards the neighbours' copies, in (0, 1].
      seed: of random compressors.

    Raises:
      ValueError: as of `checked_codec`; a gamma outside (0, 1].
    """
    compressor = checked_codec(mixing, compressor)
    check_step_size(mixing.caller, gamma)

    def start(params: optax.Params) -> Any:
        require_codable(mixing, compressor, params)
        known = [zeros_like(params) for _ in range(num_copies(mixing))]
        return ChocoState(known, initial_key(compressor, seed))

    def rule(updates: Any, params: Any, kept: Any, step: jax.Array) -> Any:
        x, u = as_float32(mixing, params, updates)
        h = jax.tree.map(jnp.add, x, u)
        p = jax.tree.map(jnp.subtract, h, kept.known[0])
        q, words = exchange_encoded(mixing, compressor, p, kept.words, step)
        known = jax.tree.map(jnp.add, kept.known, q)
        due = jnp.where(mixing.due(step), gamma, 0)
        change = consensus_step(mixing, known)
        moved = jax.tree.map(lambda u, c: u + due * c, u, change)
        return moved, ChocoState(known, words)

    return gossip_transformation(mixing, start, rule)
