"""The laws of a compressor's feedback, in an exchange between workers."""

from collections.abc import Callable

import jax.numpy as jnp

from relaxjax.check._conservation import LAW, keeps
from relaxjax.check._run import WORKERS
from relaxjax.check._verdict import Verdict, verdict_of
from relaxjax.compression import NO_FEEDBACK, Compressor, error_feedback
from relaxjax.gradients import all_reduce
from relaxjax.workers import emulate


def feedback_laws(compressor: Compressor) -> tuple[Verdict, ...]:
    """Whether what an exchange loses comes back, over several steps of 4 workers.

    A bare compressor gets `error_feedback`. A feedback of one's own claims that nothing
    is lost by a field `residual` in its state; others are reported.

    Args:
      compressor: with feedback or without.

    Example:
      >>> from relaxjax import compression
      >>> from relaxjax.check import feedback_laws
      >>> feedback_laws(compression.top_k(0.1))[0].holds
      True
    """
    return (verdict_of(LAW, _check(compressor)),)


def _check(compressor: Compressor) -> Callable[[], Verdict]:
    def check() -> Verdict:
        fed, law = compressor, compressor.law
        if compressor.feedback is NO_FEEDBACK:
            if law.delta is None and law.omega is None:
                found = "neither U nor B is declared: no feedback can be put around it"
                return Verdict(LAW, None, found)
            fed = error_feedback(compressor)
        state = fed.feedback.init(jnp.zeros(1))
        claimed = "residual" in getattr(state, "_fields", ())
        tx = all_reduce("data", compressor=fed)
        found = keeps(tx, emulate(WORKERS), claimed=claimed)
        return found._replace(found=f"with {fed.feedback.name}: {found.found}")

    return check
