"""CHOCO-SGD: gossip in codes, with a public copy of each model at its neighbors.

Source: Koloskova, Stich, Jaggi 2019 (algorithms 2 and 6). Worker i and its neighbors
hold the same copy x^_i of its model (0 at the start); with the weights W, the
optimizer's update u_i, a compressor C and the step gamma:

    h_i  = x_i + u_i
    q_i  = C(h_i - x^_i)                          (sent to the neighbors)
    x^_j = x^_j + q_j                             (own, and of each neighbor)
    x_i  = h_i + gamma sum_j W_ij (x^_j - x^_i)

The copies at both ends of a link are the same to the bit: both add up what the same
payload says. As rows and columns of W sum to 1, the mean model moves by the mean
update, whatever is lost; and what is lost stays in h - x^, to be sent later.

The more C loses, the smaller gamma must be for stability; published for signs on a ring
of 8: 0.45. Without loss and with gamma 1 this is `gossip`.

Cost: the payload to each neighbor (on a ring in signs 1/32 of `gossip`). State: a copy
of the model for each neighbor and one more, in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._merge_rules import EQUAL, rebuild
from relaxjax._core._tree import widened
from relaxjax.compression import Compressor
from relaxjax.decentralized._coded_round import (
    check_step_size,
    coded_round,
    merge_copies,
)
from relaxjax.decentralized._round import GossipSpec, gossip_transformation


class ChocoState(NamedTuple):
    """State of `gossip` with a compressor.

    Attributes:
      known: x^ of this worker, then of each message's sender, float32, like the params.
      words: uint32[2], equal on all workers, if the compressor is random; else ().
    """

    known: Annotated[list[Any], rebuild(merge_copies)]
    words: Annotated[Any, EQUAL]


def choco(
    spec: GossipSpec, compressor: Compressor, gamma: float, seed: int
) -> optax.GradientTransformationExtraArgs:
    """Gossip in codes of a compressor C, with the step gamma."""
    coded = coded_round(spec, compressor)
    check_step_size(spec.caller, gamma)

    def start(params: optax.Params) -> Any:
        coded.require_codable(params)
        known = [
            optax.tree.zeros_like(widened(params)) for _ in range(coded.num_copies)
        ]
        return ChocoState(known, coded.initial_key(seed))

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        x, u = spec.as_float32(params, updates)
        h = jax.tree.map(jnp.add, x, u)
        p = optax.tree.sub(h, memory.known[0])
        q, words = coded.exchange_encoded(p, memory.words, step)
        known = jax.tree.map(jnp.add, memory.known, q)
        due = jnp.where(spec.is_round_due(step), gamma, 0)
        change = coded.consensus_step(known)
        moved = jax.tree.map(lambda u, c: u + due * c, u, change)
        return moved, ChocoState(known, words)

    return gossip_transformation(spec, start, rule)
