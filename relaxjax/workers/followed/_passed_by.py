"""A step that trains alone, and an optimizer's state that it forgets.

The traced step (`relaxjax.workers.followed._looked`) is followed from the optimizer's
state to the state that comes out. What is read, and handed on as it was, never leaves
its start: momenta, residuals and counts. Where an optimizer steps, and no collective
stands in the program, each worker trains a model of its own.

Cost: a walk over the traced step.
"""

import warnings

import jax

from relaxjax._core.traced._flows import axes_met
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._looked import Looked
from relaxjax.workers.followed._places import (
    arguments_of,
    by_moments,
    innermost,
    optimizer_places,
    optimizers_in,
    slices_in,
)


def warn_of_nothing(found: Looked, moved: set[int], workers: WorkerMesh) -> bool:
    """Warns where an optimizer steps in a program that brings nothing together.

    Returns:
      False where something meets, such as losses: then the params are to be followed.
    """
    optimizers = moved & optimizer_places(found.state)
    if not optimizers or moved == optimizers or slices_in(found.state):
        return True  # as in an evaluation, or an average of params
    if axes_met(found.program.jaxpr.eqns, frozenset(workers.axis_name)):
        return False
    warnings.warn(
        "data_parallel: the step trains an optimizer's params, and nothing in it "
        "brings the workers together, so that each trains a model of its own. Put "
        "relaxjax.all_reduce before the optimizer, and make its state by "
        "relaxjax.init, which looks at the transformation",
        stacklevel=5,
    )
    return True


def warn_of_old_state(found: Looked, moved: set[int], read: set[int]) -> bool:
    """Warns of an optimizer's state that is read and stays, in a step that trains.

    A step that evaluates, or tries a rate, changes no params, and what it changes is no
    moment's like. Where the state of another optimizer goes on, this one may be kept on
    purpose, unless all is read.
    """
    optimizers = moved & optimizer_places(found.state)
    others = moved - optimizers
    if not others.intersection(found.places or by_moments(found).places):
        return False
    for number, (part, at) in enumerate(arguments_of(found.state)):
        kept = {i for _, own in optimizers_in(part, at.start) for i in own}
        if optimizers:  # of another one this may be kept, and a number of it be read
            kept = _whole_left(found, innermost(part, at.start), read - optimizers)
        if not read.isdisjoint(kept):
            warnings.warn(
                f"data_parallel: the step reads the optimizer's state, its argument "
                f"{number}, and returns it as it was, so that momenta, residuals and "
                "counts never leave their start. Return the state that tx.update "
                "returns: updates, opt_state = tx.update(gradients, opt_state, params)",
                stacklevel=5,
            )
            return True
    return False


def _whole_left(found: Looked, parts: list[range], left: set[int]) -> set[int]:
    """Places of arrays in optimizers' states of which all leaves are left."""
    leaves = jax.tree.leaves(found.state)
    whole = {i for at in parts if left.issuperset(at) for i in at}
    return {i for i in whole if found.relaxes and leaves[i].ndim}
