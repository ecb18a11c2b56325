"""What a step does beside its transformation: gradients and state that pass it by.

The first step is looked at (`relaxjax.workers._looked`), and followed:

    from the batch to the params that come out
        a worker's own, unless a relaxation or a collective lies between: models part
    from the optimizer's state to the state that comes out
        read, and handed on as it was: momenta, residuals and counts are forgotten

Leaves that are each worker's on purpose (`relaxjax.local`) are passed over.

Cost: two walks over the traced step.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import jax

from relaxjax._core._jaxprs import programs_of, walked
from relaxjax._core._local import LocalState
from relaxjax._core._tree import leaf_names
from relaxjax.workers._dependence import NOBODYS, Dependence
from relaxjax.workers._looked import Looked
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers._traced import is_local, parts_of


def warn_of_own_batch(found: Looked, workers: WorkerMesh) -> None:
    """Warns where the params depend on a worker's own batch past all relaxations."""
    program, states = found.program, found.states
    own = [NOBODYS] * len(program.jaxpr.invars)
    of_batch = frozenset(("batch", axis) for axis in workers.axis_name)
    own[states:] = [of_batch] * len(own[states:])
    after = Dependence(workers.axis_name).steps(program, own, range(states))
    meant = _meant(found.state)
    names = [name.partition("/")[2] for name in leaf_names(found.state)]
    parted = [i for i in found.places if after[i] and names[i] not in meant]
    if parted:
        axes = sorted({axis for i in parted for _, axis in after[i]})
        warnings.warn(
            f"data_parallel: params {names[parted[0]]!r} depend on each worker's own "
            f"batch over {axes}, by a way that no relaxation lies on, so that models "
            "part, though updates are synchronized. Change params only by the updates "
            "that tx.update returns; bring other numbers that decide or scale, as of "
            f"a loss, together first, by jax.lax.pmean(x, {axes[0]!r})",
            stacklevel=4,
        )


def _meant(state: Any) -> frozenset[str]:
    """Names of the leaves that `relaxjax.local` leaves to each worker."""

    def stops(part: Any) -> bool:  # models that meet are a relaxation's own
        return isinstance(getattr(part, "leaves", None), LocalState) or is_local(part)

    parts = filter(is_local, parts_of(state, stops))
    return frozenset(name for part in parts for name in part.layout.leaves)


def warn_of_old_state(found: Looked) -> None:
    """Warns where an argument is read, and all of an optimizer's state in it stays."""
    read: set[int] = set()
    ins = [*range(found.states), *[None] * len(found.program.jaxpr.invars)]
    outs = _handed_on(found.program.jaxpr, ins[: len(found.program.jaxpr.invars)], read)
    start = 0
    for number, argument in enumerate(found.state):
        count = len(jax.tree.leaves(argument))
        places = jax.tree.unflatten(
            jax.tree.structure(argument), range(start, start + count)
        )
        start += count
        kept = [i for part in _optimizers(places) for i in jax.tree.leaves(part)]
        if not read.isdisjoint(kept) and all(outs[i] == i for i in kept):
            warnings.warn(
                f"data_parallel: the step reads the optimizer's state, its argument "
                f"{number}, and returns it as it was, so that momenta, residuals and "
                "counts never leave their start. Return the state that tx.update "
                "returns: updates, opt_state = tx.update(gradients, opt_state, params)",
                stacklevel=4,
            )


def _optimizers(tree: Any) -> list[Any]:
    """The parts of a tree that are states of optax's transformations, or ours."""

    def is_state(part: Any) -> bool:
        home = type(part).__module__.partition(".")[0]
        return hasattr(part, "_fields") and home in ("optax", "relaxjax")

    return [part for part in parts_of(tree, is_state) if is_state(part)]


def _handed_on(
    jaxpr: Any, ins: Sequence[int | None], read: set[int]
) -> list[int | None]:
    """Which arguments the results of a program are; adds those it reads to `read`."""

    def visit(eqn: Any, ins: list[int | None], scope: str) -> Sequence[int | None]:
        del scope
        parts = [part.jaxpr for part in programs_of(eqn.params)]
        sizes = [(len(part.invars), len(part.outvars)) for part in parts]
        if sizes == [(len(ins), len(eqn.outvars))]:
            return _handed_on(parts[0], ins, read)
        read.update(i for i in ins if i is not None)
        return [None] * len(eqn.outvars)

    return walked(jaxpr, ins, None, visit)
