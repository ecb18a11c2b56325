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

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._all_reduce_checks import require_dtypes
from relaxjax._layout import layout_of
from relaxjax._local import LocalState
from relaxjax._mixing import Mixing, first_step
from relaxjax._noise import words_of
from relaxjax._told import check_step_size, checked_codec, pull, told
from relaxjax.compression import Compressor


class ChocoState(NamedTuple):
    """State of `gossip` with a compressor.

    Attributes:
      step: int32, counted around; equal on all workers.
      known: x^ of this worker and then of the sender of each message, float32, like
        the params.
      words: uint32[2], equal on all workers, of random compressors; else ().
      leaves: those that differ between workers.
    """

    step: jax.Array
    known: list[Any]
    words: Any
    leaves: LocalState


def choco(
    mixing: Mixing, compressor: Compressor, gamma: float, seed: int
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
    copies = 1 + len(mixing.topology.messages())

    def init(params: optax.Params) -> Any:
        require_dtypes(params, mixing.caller, compressor.name)
        known = [
            optax.tree.zeros_like(params, dtype=jnp.float32) for _ in range(copies)
        ]
        words = words_of(seed) if compressor.random else ()
        return ChocoState(first_step(), known, words, LocalState(layout_of(params)))

    def update(updates, state, params=None, *, weight=None, **extra_args) -> Any:
        del extra_args
        x, u = mixing.taken(updates, params, state.leaves, weight)
        h = jax.tree.map(jnp.add, x, u)
        p = jax.tree.map(lambda h, k: h - k, h, state.known[0])
        q, words = told(mixing, compressor, p, state.words, state.step)
        known = jax.tree.map(jnp.add, state.known, q)
        due = jnp.where(mixing.due(state.step), gamma, 0)
        change = pull(mixing, known)
        moved = jax.tree.map(lambda u, c: u + due * c, u, change)
        step = mixing.next_step(state.step)
        return moved, ChocoState(step, known, words, state.leaves)

    return optax.GradientTransformationExtraArgs(init, update)
