"""A worker's own loss as `value=`, which parts the replicas behind any reducer.

`init` cannot know whether the step hands `value=` a mean. The step itself can be looked
at: its program is followed:

    from the batch    to `value`: its own, unless a collective lies between
    from `value`      to the params that come out: parted, unless anything lies between
                      that brings the workers together, such as local_sgd

A loss of which only some leaves depend may be the loss itself in the gradient of leaves
that are each worker's on purpose (`relaxjax.local`): then nothing is said.

Cost: a walk over the traced step (`relaxjax.workers.followed._looked`), where `value=`
is given.
"""

import warnings

from jax.extend.core import Literal

from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._dependence import NOBODYS, Dependence
from relaxjax.workers.followed._looked import Looked


def warn_of_own_value(found: Looked, workers: WorkerMesh) -> bool:
    """Warns where a worker's own `value=` reaches its params; returns if it did."""
    parted = bool(found.values) and _is_parted(found, workers)
    if parted:
        axes = workers.axis_name
        axis = axes[0] if len(axes) == 1 else axes
        warnings.warn(
            "data_parallel: updates depend on value=, which is each worker's own loss "
            "here, and no relaxation comes after it: learning rates, and so models, "
            "part, though gradients are reduced. Give all workers the mean, as in "
            f"tx.update(..., value=jax.lax.pmean(loss, {axis!r}))",
            stacklevel=5,
        )
    return parted


def _is_parted(found: Looked, workers: WorkerMesh) -> bool:
    program, states, places = found.program, found.states, found.places
    ins = program.jaxpr.invars
    walk = Dependence(workers.axis_name)
    of_batch = frozenset(("batch", axis) for axis in workers.axis_name)
    own = [NOBODYS] * states + [of_batch] * (len(ins) - states)
    known = found.of(walk.of(program.jaxpr, own), found.values)
    walk.seeds = {
        var: frozenset(("value", axis) for _, axis in by)
        for var, by in zip(found.values, known, strict=True)
        if not isinstance(var, Literal)
    }
    after = walk.steps(program, [NOBODYS] * len(ins), range(states))
    return bool(places) and all(after[i] for i in places)
