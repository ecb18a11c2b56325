"""Momentum correction: what waits to be sent gathers momentum while it waits.

Source: Lin, Han, Mao, Wang, Dally 2018 (Deep Gradient Compression), sections 3.1 and
3.2. On each worker, from u = v = 0, with momentum m:

    u = m u + g,      p = v + u              (momentum, accumulated)
    u = m (u + g),    p = v + u + g          (Nesterov's)
    c = C(p),   v = p - c,   out = mean of c over the workers
    u = 0 where p was sent                   (momentum factor masking)

    sum of out + mean of v = sum of the mean of what was added to v in each step

Without masking, what is added is the velocity of momentum SGD on the mean gradient, and
all of it arrives, late. Masking stops a velocity that is old by the time it is sent:
the sum is another one, and with a compressor that sends everything it is that of plain
SGD, without momentum.

An element counts as sent if more of it was delivered than lost, |c| > |p - c|: for
top-k and the like in one exchange, these are the chosen ones; where a value is encoded
several times, nothing is exactly zero and the rule still tells them apart. A dense
compressor sends nearly everything, so masking leaves it little momentum: use
`masking=False` there.

State: u and v, two buffers of the size of the gradient.

Learning rate: momentum is in here, so plain SGD belongs behind it. There v is in units
of the gradient, and what waits is applied at the rate of the step that sends it.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._checks import is_off, require_momentum
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._owed import OWED
from relaxjax.compression._protocol import Compressor, Feedback, with_feedback, zeros_in


class MomentumCorrectionState(NamedTuple):
    """Attributes: velocity: u, of this worker; accumulated: v, what waits."""

    velocity: Annotated[jax.Array, MEAN]
    accumulated: Annotated[jax.Array, MEAN, OWED]


def momentum_correction(
    compressor: Compressor,
    *,
    momentum: float = 0.9,
    nesterov: bool = False,
    masking: bool = True,
) -> Compressor:
    """Wraps a compressor: velocities add up until they are sent.

    Args:
      compressor: a contraction, or unbiased (then it is divided by 1 + omega); a sparse
        one such as `top_k`.
      momentum: m, in [0, 1); 0 is `error_feedback`.
      nesterov: whether to take Nesterov's form.
      masking: whether a velocity is set to zero where it is sent.

    Returns:
      The compressor with feedback.

    Raises:
      ValueError: `momentum` is not in [0, 1); the compressor has feedback already, or
        is neither a contraction nor unbiased.

    Example:
      >>> from relaxjax import compression
      >>> compression.momentum_correction(compression.top_k(0.01)).feedback.name
      'momentum_correction'
    """
    require_momentum("momentum_correction", momentum)

    def velocity(g, state):
        if nesterov:
            return momentum * (state.velocity + g)
        return momentum * state.velocity + g

    def before(g, state):
        u = velocity(g, state)
        return state.accumulated + (u + g if nesterov else u)

    def after(g, c, mean, state):
        u, v = velocity(g, state), before(g, state) - c
        if masking:
            u = jnp.where(jnp.abs(c) > jnp.abs(v), 0, u)
        return mean, MomentumCorrectionState(velocity=u, accumulated=v)

    def absent(c, mean, state):
        return mean, state._replace(accumulated=state.accumulated - c)

    init = zeros_in(MomentumCorrectionState)
    name, has = "momentum_correction", not is_off(momentum)
    feedback = Feedback(name, init, before, after, absent, momentum=has)
    return with_feedback(compressor, feedback)
