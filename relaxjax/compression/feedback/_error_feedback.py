"""Error feedback: what was lost in one step is added in the next.

Source: Seide et al. 2014, Stich et al. 2018, Karimireddy et al. 2019 (EF14); the decay
as in SparseLoCo (Sarfi et al. 2025). On each worker, from e = 0:

    p = decay e + g,   c = C(p),   e = p - c,   out = mean of c over the workers

    decay = 1:  sum of out + mean of e = sum of the mean of g       (nothing is lost)
    decay < 1:  sum of out + mean of (e + (1 - decay) sum of all e before) = the same
    |e|^2 <= 4 (1 - delta) / delta^2 max |g|^2 for C in B(delta) and decay = 1

State: e, one buffer of the size of the gradient.

Learning rate: before the optimizer, e is in units of the gradient, and what was lost
under one rate is applied under the next; with a falling rate it counts for less. After
the optimizer, e is in units of the update and is applied as it was lost. EF-signSGD has
its momentum before the compressor, PowerSGD after it.
"""

from typing import Annotated, NamedTuple

import jax

from relaxjax._core._checks import require_fraction
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._owed import OWED
from relaxjax.compression._protocol import Compressor, Feedback, with_feedback, zeros_in


class ErrorFeedbackState(NamedTuple):
    """Attributes: residual: what this worker has lost so far."""

    residual: Annotated[jax.Array, MEAN, OWED]


def error_feedback(compressor: Compressor, *, decay: float = 1.0) -> Compressor:
    """Wraps a compressor: what it loses in one step is sent in the next.

    Args:
      compressor: a contraction, or unbiased (then it is divided by 1 + omega).
      decay: factor of the residual in each step, in (0, 1]; below 1 the past is
        forgotten on purpose.

    Returns:
      The compressor with feedback.

    Raises:
      ValueError: `decay` is not in (0, 1]; the compressor has feedback already, or is
        neither a contraction nor unbiased.

    Example:
      >>> from relaxjax import compression
      >>> compression.error_feedback(compression.top_k(0.01)).feedback.name
      'error_feedback'
    """
    require_fraction("error_feedback", "decay", decay)

    def before(g, state):
        return decay * state.residual + g

    def after(g, c, mean, state):
        return mean, ErrorFeedbackState(residual=before(g, state) - c)

    def absent(c, mean, state):
        return mean, ErrorFeedbackState(residual=state.residual - c)

    rule = zeros_in(ErrorFeedbackState), before, after, absent
    return with_feedback(compressor, Feedback("error_feedback", *rule))
