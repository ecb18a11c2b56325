"""Nothing is lost: what came out and what waits is what went in.

    sum over the steps of out + mean over the workers of e = sum of the mean of g

with e the fields called `residual` in the state. A transformation without any claims
that e = 0: what comes out is the mean.
"""

import numpy as np
import optax
from jax.sharding import Mesh

from relaxjax.check._run import (
    KINDS,
    WORKERS,
    Tree,
    flat,
    gradients,
    moments,
    residuals,
)
from relaxjax.check._verdict import Counterexample, Verdict, refuted
from relaxjax.workers import Emulation

LAW = "nothing is lost"
_TOLERANCE = 2e-5  # of the largest sum, in float32


def keeps(
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
      claimed: whether a loss refutes anything.
      sign: of the updates, beside gradients; -1 after SGD with a rate of 1.
    """
    waits = False
    for kind in KINDS:
        total, out = 0.0, 0.0
        steps = gradients(kind, mesh.size)
        for step, now in enumerate(moments(tx, steps, mesh)):
            total = total + flat(now.gradients).mean(axis=0)
            out = out + sign * flat(now.updates).mean(axis=0)
            kept = residuals(now.state)
            waits = waits or bool(kept)
            held = sum(flat(e).mean(axis=0) for e in kept if _whole(e, total))
            if case := _difference(total, out + held, kind, step):
                if not claimed:
                    return Verdict(LAW, None, f"not claimed; lost: {case}")
                found = "it is lost" if waits else "lost, and no field `residual`"
                return refuted(LAW, found, case)
    found = "out and residuals are what went in" if waits else "out is the mean"
    return Verdict(LAW, True if claimed else None, found)


def _whole(residual: Tree, total: np.ndarray) -> bool:
    """Whether a residual is like the params; parts of a state may be scalars."""
    return flat(residual).shape[1] == np.size(total)


def _difference(
    total: np.ndarray, seen: np.ndarray, kind: str, step: int
) -> Counterexample | None:
    off = np.abs(seen - total)
    worst = int(np.nan_to_num(off, nan=np.inf).argmax())
    if off[worst] <= _TOLERANCE * max(1.0, np.abs(total).max()):
        return None
    where = {
        "gradients": kind,
        "seed": 1,
        "workers": WORKERS,
        "step": step,
        "element": worst,
    }
    return Counterexample(where, f"{total[worst]:.6g}", f"{seen[worst]:.6g}")
