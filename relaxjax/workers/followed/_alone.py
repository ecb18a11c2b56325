"""A meeting of workers that each of them enters or not by its own numbers.

The traced step (`relaxjax.workers.followed._looked`) is followed from the batch, and
from a worker's place among the others, to what decides its branches and loops. Where a
relaxation or a collective stands in one, some workers wait there for others, who never
come: on a mesh the step hangs. Emulated workers part. So this is told before the step
runs.

Cost: a walk over the traced step.
"""

import sys
import warnings
from typing import Any

from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._dependence import NOBODYS, Dependence, Own
from relaxjax.workers.followed._looked import Looked


def warn_of_alone(found: Looked, keys: dict[int, Own], workers: WorkerMesh) -> bool:
    """Warns where a worker's own numbers decide whether workers meet.

    Args:
      found: the traced step.
      keys: own keys by their places among the state's leaves.
      workers: those of the step.
    """
    program, states = found.program, found.states
    if workers.n == 1:
        return False
    of_batch = frozenset(("batch", axis) for axis in workers.axis_name)
    own = [keys.get(i, NOBODYS) for i in range(states)]
    own += [of_batch] * (len(program.jaxpr.invars) - states)
    walk = Dependence(workers.axis_name)
    walk.index = "index"
    walk.steps(program, own, range(states))
    if walk.alone:
        axis = workers.axis_name[0]
        warnings.warn(
            f"data_parallel: whether {min(walk.alone)} runs in a branch or a loop is "
            "decided by each worker's own batch, key or place, so that some workers "
            "enter and others do not: on a mesh the step hangs, and emulated workers "
            f"part. Bring what decides together: jax.lax.pmean(x, {axis!r}) of a loss, "
            f"jax.lax.pmax(x, {axis!r}) of a flag",
            stacklevel=_levels(),
        )
    return bool(walk.alone)


def _levels() -> int:
    """How far the user's own line is from the caller, in frames of the stack."""
    frame: Any = sys._getframe(1)
    levels, homes = 1, ("relaxjax", "jax")
    while frame.f_globals["__name__"].partition(".")[0] in homes:
        frame, levels = frame.f_back, levels + 1
    return levels
