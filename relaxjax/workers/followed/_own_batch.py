"""A worker's own batch that reaches its params past all relaxations, or its own index.

The traced step (`relaxjax.workers.followed._looked`) is followed from the batch, and
from each worker's place among the others, to the params that come out: they are a
worker's own, unless a relaxation or a collective lies between. Then models part. What
meets in one branch of a `cond` is trusted to meet, as models that are averaged by hand
every H steps.

Leaves that are each worker's on purpose (`relaxjax.local`, or slices of params that lie
sharded) are passed over. A relaxation that is given them beside others may mix them:
then nothing is said of their axes.

Cost: two walks over the traced step.
"""

import warnings
from collections.abc import Collection, Sequence
from typing import Any

from relaxjax._core._local import LocalState
from relaxjax._core._tree import leaf_names
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._as_it_is import AS_IS, USED
from relaxjax.workers.followed._dependence import NOBODYS, Dependence, Own
from relaxjax.workers.followed._looked import Looked
from relaxjax.workers.followed._places import (
    beside_params,
    by_moments,
    slices_in,
)
from relaxjax.workers.followed._traced import is_local, parts_of


def warn_of_own_batch(
    found: Looked, workers: WorkerMesh, beside: Collection[int] = ()
) -> bool:
    """Warns where the params depend on a worker's own batch past all relaxations.

    So may others, `beside` those that a relaxation is given.
    """
    after = _after(found, workers)
    whole = leaf_names(found.state)
    names = [name.partition("/")[2] for name in whole]
    meant = slices_in(found.state) | _meant(found.state, names)
    mixed = {axis for i in found.places if i in meant for _, axis in after[i]}
    own_axes = {i: {axis for _, axis in after[i]} for i in {*found.places, *beside}}
    apart = {i: own_axes[i] - mixed for i in found.places}
    apart |= {i: own_axes[i] for i in beside if i not in meant}
    if parted := sorted(i for i, axes in apart.items() if axes):
        axes = sorted(set().union(*(apart[i] for i in parted)))
        name = names[parted[0]] or f"argument {whole[parted[0]]}"
        source = min(source for source, _ in after[parted[0]])
        is_given = found.relaxes and parted[0] not in beside
        remedy = _ONLY_BY_UPDATES if is_given else _REDUCE
        warnings.warn(
            f"data_parallel: params {name!r} depend on each worker's own "
            f"{source} over {axes} past every relaxation, so the models drift apart. "
            + remedy.format(axes[0]),
            stacklevel=5,
        )
    return bool(parted)


def _after(found: Looked, workers: WorkerMesh) -> list[Own]:
    """What of a worker's own the results depend on, of this step or others.

    Its index counts along the axes of relaxations: along others, such as a pipeline's,
    params may differ.
    """
    program, states = found.program, found.states
    of_batch = frozenset(("batch", axis) for axis in workers.axis_name)
    own = [NOBODYS] * states + [of_batch] * (len(program.jaxpr.invars) - states)
    walk = Dependence(workers.axis_name)
    walk.index, walk.trusting = "index", True
    along = {("index", axis) for x in found.given for axis in x.at.axes}
    return [
        pairs & (of_batch | along) for pairs in walk.steps(program, own, range(states))
    ]


_ONLY_BY_UPDATES = (
    "Change params only by the updates that tx.update returns. Average other numbers "
    "that decide or scale, such as a loss, before they are used: jax.lax.pmean(x, {!r})"
)


_REDUCE = (
    "Put relaxjax.all_reduce({0!r}) before the optimizer, or average all gradients "
    "before it: jax.lax.pmean(gradients, {0!r})"
)


def with_found_params(found: Looked, outs: Sequence[Own], moved: set[int]) -> Looked:
    """With the first of the parts like the updates to which something is added.

    That is, where params are not what a relaxation is given; `outs` as below.
    """
    for part in found.alike:
        added_to = all((f"leaf {i}", AS_IS) in outs[i] for i in part)
        if added_to and moved.issuperset(part):
            return found._replace(places=part)
    return found


def trained_beside(found: Looked, outs: Sequence[Own]) -> set[int]:
    """Places of params that no relaxation is given, in a step in which one is.

    Something is added to them in the step; and the gradients depend on them, or momenta
    are like them, and what is added to them depends on them. `outs` are the marks of
    the step's results.
    """
    moments = by_moments(found).places
    used = NOBODYS.union(*found.of(outs, [x.updates for x in found.given]))
    used |= {(f"leaf {i}", USED) for i in moments if (f"leaf {i}", USED) in outs[i]}
    return {
        i
        for i in beside_params(found)
        if (f"leaf {i}", AS_IS) in outs[i] and (f"leaf {i}", USED) in used
    }


def _meant(state: Any, names: Sequence[str]) -> set[int]:
    """Places of the leaves that `relaxjax.local` leaves to each worker."""

    def stops(part: Any) -> bool:  # models that meet are a relaxation's own
        return isinstance(getattr(part, "leaves", None), LocalState) or is_local(part)

    parts = filter(is_local, parts_of(state, stops))
    own = {name for part in parts for name in part.layout.leaves}
    return {i for i, name in enumerate(names) if name in own}
