"""What a step does beside its transformation: gradients and state that pass it by.

The first step is looked at (`relaxjax.workers.followed._looked`), and followed:

    from the batch to the params that come out
        a worker's own, unless a relaxation or a collective lies between: models part
    from the optimizer's state to the state that comes out
        read, and handed on as it was: momenta, residuals and counts are forgotten

Leaves that are each worker's on purpose (`relaxjax.local`, or slices of params that lie
sharded) are passed over. A relaxation that is given them beside others may mix them:
then nothing is said of their axes.

Cost: two walks over the traced step.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import jax

from relaxjax._core._jaxprs import programs_of, walked
from relaxjax._core._local import LocalState
from relaxjax._core._tree import leaf_names
from relaxjax._core.traced._flows import axes_met
from relaxjax.workers._consensus import is_sliced
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._dependence import NOBODYS, Dependence
from relaxjax.workers.followed._looked import Looked, is_optimizers, places_like
from relaxjax.workers.followed._traced import is_local, parts_of


def warn_of_own_batch(found: Looked, workers: WorkerMesh) -> None:
    """Warns where the params depend on a worker's own batch past all relaxations."""
    program, states = found.program, found.states
    own = [NOBODYS] * len(program.jaxpr.invars)
    of_batch = frozenset(("batch", axis) for axis in workers.axis_name)
    own[states:] = [of_batch] * len(own[states:])
    after = Dependence(workers.axis_name).steps(program, own, range(states))
    names = [name.partition("/")[2] for name in leaf_names(found.state)]
    meant = _slices(found.state) | _meant(found.state, names)
    mixed = {axis for i in found.places if i in meant for _, axis in after[i]}
    apart = {i: {axis for _, axis in after[i]} - mixed for i in found.places}
    if parted := [i for i, axes in apart.items() if axes]:
        axes = sorted(set().union(*(apart[i] for i in parted)))
        remedy = _ONLY_BY_UPDATES if found.relaxes else _REDUCE
        warnings.warn(
            f"data_parallel: params {names[parted[0]]!r} depend on each worker's own "
            f"batch over {axes} past every relaxation, so the models drift apart. "
            + remedy.format(axes[0]),
            stacklevel=5,
        )


_ONLY_BY_UPDATES = (
    "Change params only by the updates that tx.update returns. Average other numbers "
    "that decide or scale, such as a loss, before they are used: jax.lax.pmean(x, {!r})"
)
_REDUCE = (
    "Put relaxjax.all_reduce({0!r}) before the optimizer, or average all gradients "
    "before it: jax.lax.pmean(gradients, {0!r})"
)


def _slices(state: Any) -> set[int]:
    """Places of slices, which differ by right."""
    parts = filter(is_sliced, parts_of(_places(state), is_sliced))
    return {*jax.tree.leaves([*parts])}


def _places(state: Any) -> Any:
    """The state's tree with the place of each leaf among all in the leaf's stead."""
    leaves, tree = jax.tree.flatten(state)
    return tree.unflatten(range(len(leaves)))


def _meant(state: Any, names: Sequence[str]) -> set[int]:
    """Places of the leaves that `relaxjax.local` leaves to each worker."""

    def stops(part: Any) -> bool:  # models that meet are a relaxation's own
        return isinstance(getattr(part, "leaves", None), LocalState) or is_local(part)

    parts = filter(is_local, parts_of(state, stops))
    own = {name for part in parts for name in part.layout.leaves}
    return {i for i, name in enumerate(names) if name in own}


def warn_of_nothing(found: Looked, workers: WorkerMesh) -> bool:
    """Warns where an optimizer steps in a program that brings nothing together.

    Returns:
      False where something meets, such as losses: then the params are to be followed.
    """
    optimizers, others = _changed(found)
    if not (optimizers and others) or _slices(found.state):
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


def warn_of_old_state(found: Looked) -> None:
    """Warns of an optimizer's state that is read and stays, in a step that trains.

    A step that reads it to evaluate changes nothing else. Where the state of another
    optimizer goes on, this one may be kept on purpose.
    """
    optimizers, others = _changed(found)
    if optimizers or not others:
        return
    _, read = _handed_on(found)
    for number, kept in enumerate(_optimizer_places(found.state)):
        if not read.isdisjoint(kept):
            warnings.warn(
                f"data_parallel: the step reads the optimizer's state, its argument "
                f"{number}, and returns it as it was, so that momenta, residuals and "
                "counts never leave their start. Return the state that tx.update "
                "returns: updates, opt_state = tx.update(gradients, opt_state, params)",
                stacklevel=5,
            )


def _changed(found: Looked) -> tuple[set[int], set[int]]:
    """Places of leaves that come out other than they were, of optimizers and others."""
    outs, _ = _handed_on(found)
    optimizers = {i for kept in _optimizer_places(found.state) for i in kept}
    changed = {i for i in range(found.states) if outs[i] != i}
    return changed & optimizers, changed - optimizers


def _optimizer_places(state: tuple[Any, ...]) -> list[list[int]]:
    """Places of optimizers' states among the leaves, by argument."""
    return [jax.tree.leaves(optimizers_in(part)) for part in _places(state)]


def optimizers_in(tree: Any) -> list[Any]:
    """The parts of a tree that are states of optax's transformations, or ours."""
    return [part for part in parts_of(tree, is_optimizers) if is_optimizers(part)]


def by_moments(found: Looked) -> Looked:
    """With the params that are like a field of an optimizer's state, as its momenta."""

    def fields(part: Any) -> list[Any]:
        within = optimizers_in(list(part))
        return [x for inner in within for x in fields(inner)] or list(part)

    each = [x for part in optimizers_in(found.state) for x in fields(part)]
    like = [x for x in each if any(leaf.ndim for leaf in jax.tree.leaves(x))]
    places = {i for x in like for i in places_like(found.state, x)}
    return found._replace(places=sorted(places))


def _handed_on(found: Looked) -> tuple[list[int | None], set[int | None]]:
    """Which of the state's leaves the results are; and those that equations read."""
    read: set[int | None] = set()

    def results(jaxpr: Any, ins: Sequence[int | None]) -> list[int | None]:
        return walked(jaxpr, ins, None, visit)

    def visit(eqn: Any, ins: list[int | None], scope: str) -> Sequence[int | None]:
        del scope
        parts = [part.jaxpr for part in programs_of(eqn.params)]
        sizes = [(len(part.invars), len(part.outvars)) for part in parts]
        if sizes == [(len(ins), len(eqn.outvars))]:
            return results(parts[0], ins)
        read.update(ins)
        return [None] * len(eqn.outvars)

    program, states = found.program.jaxpr, found.states
    others = len(program.invars) - states
    return results(program, [*range(states), *[None] * others]), read
