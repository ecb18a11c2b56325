"""EF21: workers send differences between their gradients and what all know of them.

Source: Richtarik, Sokolov, Fatkhullin 2021; with momentum, Fatkhullin, Tyurin,
Richtarik 2023. On each worker, from v = h = G = 0:

    ef21:       p = g - h
    ef21_sgdm:  v = (1 - eta) v + eta g,   p = v - h
    c = C(p),   h = h + c,   G = G + mean of c,   out = G

    G = mean of h, always
    |g - h|^2 falls by the factor 1 - delta in each step if g stays as it is

Plain ef21 is for full batches: with the noise of small ones it stalls, and ef21_sgdm
does not. As out is an estimate of the averaged gradient, plain SGD belongs behind it.

State: h and G, two buffers of the size of the gradient; three with v.

Learning rate: before the optimizer, h estimates the gradient, and a change of the rate
changes nothing. After the optimizer, h estimates an update that shrinks with the rate,
and for some 1 / delta steps out is still as large as before the change.
"""

from typing import Annotated, NamedTuple

import jax

from relaxjax._core._checks import require_fraction
from relaxjax._core._merge_rules import MEAN
from relaxjax.compression._protocol import Compressor, Feedback, with_feedback, zeros_in


class EF21State(NamedTuple):
    """Attributes: known: what all know of this worker; mean: that of all workers."""

    known: Annotated[jax.Array, MEAN]
    mean: Annotated[jax.Array, MEAN]


class EF21SGDMState(NamedTuple):
    """Attributes: momentum: of this worker; known, mean: as in `EF21State`."""

    momentum: Annotated[jax.Array, MEAN]
    known: Annotated[jax.Array, MEAN]
    mean: Annotated[jax.Array, MEAN]


def ef21(compressor: Compressor) -> Compressor:
    """Wraps a compressor: it sends differences to the estimate sent so far.

    Args:
      compressor: a contraction, or unbiased (then it is divided by 1 + omega).

    Returns:
      The compressor with feedback.

    Raises:
      ValueError: the compressor has feedback already, or is neither a contraction nor
        unbiased.

    Example:
      >>> from relaxjax import compression
      >>> compression.ef21(compression.top_k(0.01)).feedback.name
      'ef21'
    """

    def before(g, state):
        return g - state.known

    def after(g, c, mean, state):
        state = EF21State(known=state.known + c, mean=state.mean + mean)
        return state.mean, state

    def absent(c, mean, state):
        return after(None, c, mean, state)

    feedback = Feedback(
        "ef21", zeros_in(EF21State), before, after, absent, remembers=True
    )
    return with_feedback(compressor, feedback)


def ef21_sgdm(compressor: Compressor, *, eta: float = 0.1) -> Compressor:
    """Wraps a compressor: it sends differences of a momentum to the estimate so far.

    Args:
      compressor: a contraction, or unbiased (then it is divided by 1 + omega).
      eta: weight of the new gradient in the momentum, in (0, 1]; 1 is `ef21`.

    Returns:
      The compressor with feedback.

    Raises:
      ValueError: `eta` is not in (0, 1]; the compressor has feedback already, or is
        neither a contraction nor unbiased.

    Example:
      >>> from relaxjax import compression
      >>> compression.ef21_sgdm(compression.top_k(0.01), eta=0.2).feedback.name
      'ef21_sgdm'
    """
    require_fraction("ef21_sgdm", "eta", eta)

    def momentum(g, state):
        return (1 - eta) * state.momentum + eta * g

    def before(g, state):
        return momentum(g, state) - state.known

    def after(g, c, mean, state):
        state = EF21SGDMState(momentum(g, state), state.known + c, state.mean + mean)
        return state.mean, state

    def absent(c, mean, state):
        state = EF21SGDMState(state.momentum, state.known + c, state.mean + mean)
        return state.mean, state

    feedback = Feedback(
        "ef21_sgdm", zeros_in(EF21SGDMState), before, after, absent, remembers=True
    )
    return with_feedback(compressor, feedback)
