"""Which leaves of a step's state are an optimizer's, params or slices, and which stay.

Leaves are told by their places among all leaves of the state.
"""

from collections.abc import Sequence
from typing import Any

import jax

from relaxjax._core._jaxprs import programs_of, walked
from relaxjax.workers._consensus import is_sliced
from relaxjax.workers.followed._looked import Looked, is_optimizers, places_like


def slices_in(state: Any) -> set[int]:
    """Places of slices, which differ by right."""
    parts = filter(is_sliced, jax.tree.leaves(numbered(state), is_leaf=is_sliced))
    return {*jax.tree.leaves([*parts])}


def numbered(state: Any) -> Any:
    """The state's tree with the place of each leaf among all in the leaf's stead."""
    leaves, tree = jax.tree.flatten(state)
    return tree.unflatten(range(len(leaves)))


def innermost(tree: Any) -> list[Any]:
    """States of transformations in which there are no others."""
    parts = [(part, innermost(list(part))) for part in optimizers_in(tree)]
    return [x for part, inside in parts for x in inside or [part]]


def _all_states(tree: Any) -> list[Any]:
    """States of transformations, and those inside of them."""
    parts = [[part, *_all_states(list(part))] for part in optimizers_in(tree)]
    return [x for several in parts for x in several]


def optimizer_places(state: tuple[Any, ...]) -> set[int]:
    """Places of optimizers' states among the leaves."""
    return {*jax.tree.leaves(optimizers_in(numbered(state)))}


def optimizers_in(tree: Any) -> list[Any]:
    """The parts of a tree that are states of optax's transformations, or ours."""
    return [
        part
        for part in jax.tree.leaves(tree, is_leaf=is_optimizers)
        if is_optimizers(part)
    ]


def by_moments(found: Looked) -> Looked:
    """With the params that are like a field of an optimizer's state, as its momenta."""
    each = [x for part in _all_states(found.state) for x in part]
    own = [x for x in each if not optimizers_in(x)]
    like = [x for x in own if any(leaf.ndim for leaf in jax.tree.leaves(x))]
    places = {i for x in like for i in places_like(found.state, x)}
    return found._replace(places=sorted(places))


def moved_and_read(found: Looked) -> tuple[set[int], set[int]]:
    """Places of the leaves that come out other than they were, or that are read."""
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
    outs = results(program, [*range(states), *[None] * others])
    return {i for i in range(states) if outs[i] != i}, {*range(states)} & read


def beside_params(found: Looked) -> set[int]:
    """Places of what may be params too, as momenta are like it, or by the argument."""
    params = {*by_moments(found).places, *found.places}
    leaves = [jax.tree.leaves(part) for part in numbered(found.state)]
    beside = {i for part in leaves if not params.isdisjoint(part) for i in part}
    return beside - optimizer_places(found.state) - {*found.places}
