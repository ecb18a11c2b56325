"""A meeting of workers that each of them enters or not by its own numbers.

The traced step (`relaxjax.workers.followed._looked`) is followed from the batch, and
from a worker's place among the others, to what decides its branches and loops. Where a
relaxation or a collective stands in one, some workers wait there for others, who never
come: on a mesh the step hangs. Emulated workers part. So this is told before the step
runs.

Cost: a walk over the traced step, if there is a collective in a branch or a loop of it.
"""

import warnings

from relaxjax._core._jaxprs import programs_of
from relaxjax._core.traced._flows import axes_met
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._dependence import NOBODYS, Dependence
from relaxjax.workers.followed._looked import Looked


def warn_of_alone(found: Looked, workers: WorkerMesh) -> None:
    """Warns where a worker's own batch or index decides whether workers meet."""
    axes = frozenset(workers.axis_name)
    program, states = found.program, found.states
    if workers.n == 1 or not _chooses(program.jaxpr, axes):
        return
    of_batch = frozenset(("batch", axis) for axis in workers.axis_name)
    own = [NOBODYS] * states + [of_batch] * (len(program.jaxpr.invars) - states)
    walk = Dependence(workers.axis_name)
    walk.index = "index"
    walk.steps(program, own, range(states))
    if walk.alone:
        axis = workers.axis_name[0]
        warnings.warn(
            f"data_parallel: whether {min(walk.alone)} runs in a branch or a loop is "
            "decided by each worker's own batch or place, so that some workers enter "
            "and others do not: on a mesh the step hangs, and emulated workers part. "
            f"Bring what decides together: jax.lax.pmean(x, {axis!r}) of a loss, "
            f"jax.lax.pmax(x, {axis!r}) of a flag",
            stacklevel=2,
        )


def _chooses(jaxpr: object, axes: frozenset[str]) -> bool:
    """Whether workers meet in a branch or a loop."""
    for eqn in getattr(jaxpr, "eqns", ()):
        inside = [part.jaxpr for part in programs_of(eqn.params)]
        if eqn.primitive.name in ("cond", "while"):
            if any(axes_met(part.eqns, axes) for part in inside):
                return True
        elif any(_chooses(part, axes) for part in inside):
            return True
    return False
