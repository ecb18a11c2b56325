"""EControl: differences as in EF21, and a share of what was lost as in error feedback.

Source: Gao, Islamov, Stich 2024. On each worker, from e = h = H = 0:

    p = eta e + g - h,   c = C(p)
    e = e + g - h - c,   h = h + c,   H = H + mean of c,   out = H

    H = mean of h, always; e is the sum of all g - h (with the new h), what the
    estimates have fallen short of so far

The parameters move by the mean of h, not of c. Neither large batches nor bounded
gradients are assumed; eta = 0 would be EF21. On random gradients eta = delta was stable
for top-k and random-k of density 0.1, 0.03 and 0.01, and eta = 3 delta diverged; sign,
whose delta is declared for the worst input, was stable with every eta up to 1.

State: e, h and H, three buffers of the size of the gradient.

Learning rate: before the optimizer, h estimates the gradient, and a change of the rate
touches e alone, which counts at the new rate. After the optimizer, h estimates an
update that shrinks with the rate, and out follows only some 1 / delta steps later.
"""

from typing import Annotated, NamedTuple

import jax

from relaxjax._core._checks import require_fraction
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._owed import OWED
from relaxjax.compression._protocol import (
    Compressor,
    Feedback,
    contractive,
    with_feedback,
    zeros_in,
)

# A smaller declared delta is a worst case, far from the usual one.
_LEAST, _USUAL = 1e-3, 0.1


class EControlState(NamedTuple):
    """State of one worker.

    Attributes:
      residual: e, what the estimates have fallen short of so far.
      known: h, what all know of this worker.
      mean: H, the mean of `known` over the workers.
    """

    residual: Annotated[jax.Array, MEAN, OWED]
    known: Annotated[jax.Array, MEAN]
    mean: Annotated[jax.Array, MEAN]


def econtrol(compressor: Compressor, *, eta: float | None = None) -> Compressor:
    """Wraps a compressor: it sends differences and a share of what was lost.

    Args:
      compressor: a contraction, or unbiased (then it is divided by 1 + omega).
      eta: share of the residual that is sent again, in (0, 1]; for top-k and random-k
        no more than their density, or the residual grows without bound. None: the
        compressor's delta, or 0.1 where less than 1e-3 is declared.

    Returns:
      The compressor with feedback.

    Raises:
      ValueError: `eta` is not in (0, 1]; the compressor has feedback already, or is
        neither a contraction nor unbiased.

    Example:
      >>> from relaxjax import compression
      >>> compression.econtrol(compression.top_k(0.01)).feedback.name
      'econtrol'
    """
    if eta is not None:
        require_fraction("econtrol", "eta", eta)
    law = contractive(compressor).law

    def share(g):
        if eta is not None:
            return eta
        delta = law.delta(g.size) if law.delta else 0.0
        return delta if delta >= _LEAST else _USUAL

    def before(g, state):
        return share(g) * state.residual + g - state.known

    def after(g, c, mean, state):
        state = EControlState(
            residual=state.residual + g - state.known - c,
            known=state.known + c,
            mean=state.mean + mean,
        )
        return state.mean, state

    def absent(c, mean, state):
        known, mean = state.known + c, state.mean + mean
        return mean, EControlState(state.residual, known, mean)

    feedback = Feedback(
        "econtrol", zeros_in(EControlState), before, after, absent, remembers=True
    )
    return with_feedback(compressor, feedback)
