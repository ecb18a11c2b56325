"""Nothing is lost: what came out and what waits add up to what went in.

    sum over the steps of out + mean over the workers of e = sum of the mean of g

where e are the fields called `residual` in the state. A transformation without such a
field claims that e = 0: what comes out is the mean. A compressor's feedback is checked
so in an all-reduce.
"""

import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from relaxjax.check._run import KINDS, WORKERS, flat, gradients, moments, residuals
from relaxjax.check._verdict import Verdict, farthest, refuted, unclaimed, verdict_of
from relaxjax.compression import NO_FEEDBACK, Compressor, error_feedback
from relaxjax.gradients import all_reduce
from relaxjax.workers import Emulation, emulate

LAW = "nothing is lost"
_TOLERANCE = 2e-5  # relative to the largest sum, in float32


def conserves(
    tx: optax.GradientTransformation,
    mesh: Mesh | Emulation,
    *,
    claimed: bool = True,
    sign: float = 1.0,
) -> Verdict:
    """Adds up what comes out of a transformation of gradients.

    Args:
      tx: the transformation.
      mesh: the workers.
      claimed: whether a loss refutes the law.
      sign: the sign of updates relative to gradients; -1 after SGD with a rate of 1.
    """
    waits = False
    for kind in KINDS:
        total, out = 0.0, 0.0
        for step, now in enumerate(moments(tx, gradients(kind, mesh.size), mesh)):
            total = total + flat(now.gradients).mean(axis=0)
            out = out + sign * flat(now.updates).mean(axis=0)
            waiting = [flat(e) for e in residuals(now.state)]
            waits = waits or bool(waiting)
            # Only residuals like the params; parts of a state may be scalars.
            like = [e for e in waiting if e.shape[1] == np.size(total)]
            seen = out + sum(e.mean(axis=0) for e in like)
            if case := _difference(total, seen):
                found = "it is lost" if waits else "lost, and no field `residual`"
                where = {"gradients": kind, "seed": 1, "workers": mesh.size}
                where |= {"step": step, "element": case[0]}
                failed = refuted(LAW, found, where, *case[1:])
                return failed if claimed else unclaimed(failed, "not claimed; lost")
    found = "out and residuals are what went in" if waits else "out is the mean"
    return Verdict(LAW, True if claimed else None, found)


def _difference(total: np.ndarray, seen: np.ndarray) -> tuple[int, float, float] | None:
    """Where the sums differ most, what was expected there, and what is seen."""
    (worst,), off = farthest(seen, total)
    if off <= _TOLERANCE * max(1.0, np.abs(total).max()):
        return None
    return worst, total[worst], seen[worst]


def feedback_laws(compressor: Compressor) -> tuple[Verdict, ...]:
    """Checks that what an exchange loses comes back, over several steps of 4 workers.

    A bare compressor gets `error_feedback`. A feedback of your own claims that nothing
    is lost by a field `residual` in its state; others are only reported.

    Args:
      compressor: a compressor with feedback or without.

    Returns:
      One verdict.

    Example:
      >>> from relaxjax import compression
      >>> from relaxjax.check import feedback_laws
      >>> feedback_laws(compression.top_k(0.1))[0].holds
      True
    """
    return (verdict_of(LAW, lambda: _returned(compressor)),)


def _returned(compressor: Compressor) -> Verdict:
    if compressor.feedback is NO_FEEDBACK:
        if compressor.law.delta is None and compressor.law.omega is None:
            found = "neither U nor B is declared: no feedback can be put around it"
            return Verdict(LAW, None, found)
        compressor = error_feedback(compressor)
    feedback = compressor.feedback
    claimed = "residual" in getattr(feedback.init(jnp.zeros(1)), "_fields", ())
    tx = all_reduce("data", compressor=compressor)
    verdict = conserves(tx, emulate(WORKERS), claimed=claimed)
    return verdict._replace(found=f"with {feedback.name}: {verdict.found}")
