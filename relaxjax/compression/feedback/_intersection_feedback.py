"""Intersection feedback: what did not come out of the sum stays with who sent it.

Source: Li and Hoefler 2022 (Ok-Topk), as the authors' program has it, for any exchange.
On each worker, from e = 0, element by element:

    p = e + g,   out = mean of c over the workers
    e = p - c where out is not 0,   p elsewhere

With top-k in two shots a worker selects, and the sum of all selections is selected from
again. What is in both selections counts as sent; e keeps everything else. In
`error_feedback` the worker that added up also keeps what the second selection left out,
n-fold and for everybody; here each worker keeps its own part.

    n out = sum of c, and where out is 0 nobody gives anything away:
    sum of out + mean of e = sum of the mean of g       (nothing is lost)

The same as `error_feedback` where nothing is selected twice: by one-shot, and for codes
that make no zeros. Shares that cancel exactly, so that out is 0, stay where they are.

State: e, one buffer of the size of the gradient.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._merge_rules import MEAN
from relaxjax._core._owed import OWED
from relaxjax.compression._protocol import Compressor, Feedback, with_feedback, zeros_in


class IntersectionFeedbackState(NamedTuple):
    """Attributes: residual: what of this worker has not come out of a sum so far."""

    residual: Annotated[jax.Array, MEAN, OWED]


def intersection_feedback(compressor: Compressor) -> Compressor:
    """Wraps a compressor: a worker sends again what the second selection left out.

    For `top_k` by `algorithm="two_shot"`, which selects twice.

    Args:
      compressor: a contraction, or unbiased (then it is divided by 1 + omega).

    Returns:
      The compressor with feedback.

    Raises:
      ValueError: the compressor has feedback already, or is neither a contraction nor
        unbiased.

    Example:
      >>> from relaxjax import compression
      >>> compression.intersection_feedback(compression.top_k(0.01)).feedback.name
      'intersection_feedback'
    """

    def before(g, state):
        return state.residual + g

    def after(g, c, mean, state):
        return mean, IntersectionFeedbackState(before(g, state) - _in_both(c, mean))

    def absent(c, mean, state):
        return mean, IntersectionFeedbackState(state.residual - _in_both(c, mean))

    rule = zeros_in(IntersectionFeedbackState), before, after, absent
    return with_feedback(compressor, Feedback("intersection_feedback", *rule))


def _in_both(c: jax.Array, mean: jax.Array) -> jax.Array:
    return jnp.where(mean == 0, 0, c)
