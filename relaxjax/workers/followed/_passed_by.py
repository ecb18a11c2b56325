"""A step that trains alone, and an optimizer's state that it forgets.

The traced step (`relaxjax.workers.followed._looked`) is followed from the optimizer's
state to the state that comes out. What is read, and handed on as it was, never leaves
its start: momenta, residuals and counts. Where an optimizer steps, and no collective
stands in the program, each worker trains a model of its own.

Cost: a walk over the traced step.
"""

import warnings
from typing import Any

import jax

from relaxjax._core.traced._flows import axes_met
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._looked import Looked
from relaxjax.workers.followed._places import (
    by_moments,
    innermost,
    numbered,
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
    for number, part in enumerate(numbered(found.state)):
        kept = {*jax.tree.leaves(optimizers_in(part))}
        if optimizers:  # of another one this may be kept, and a number of it be read
            kept = _whole_left(found, part, read - optimizers)
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


def _whole_left(found: Looked, part: Any, left: set[int]) -> set[int]:
    """Places of arrays in an optimizer's state of which all leaves are left."""
    leaves = jax.tree.leaves(found.state)
    parts = [{*jax.tree.leaves(x)} for x in innermost(part)]
    whole = set().union(*(x for x in parts if x <= left)) if found.relaxes else set()
    return {i for i in whole if leaves[i].ndim}
