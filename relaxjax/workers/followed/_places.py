"""Which leaves of a step's state are an optimizer's, params or slices, and which stay.

Leaves are told by their places among all leaves of the state.
"""

from collections.abc import Sequence
from typing import Any

import jax

from relaxjax._core._jaxprs import programs_of, walked
from relaxjax._core.foreign._spans import spans
from relaxjax.workers._consensus import is_sliced
from relaxjax.workers.followed._looked import Looked, is_optimizers, places_like


def slices_in(state: Any) -> set[int]:
    """Places of slices, which differ by right."""
    return {i for part, at in spans(state, is_sliced) if is_sliced(part) for i in at}


def innermost(tree: Any, start: int) -> list[range]:
    """Places of states of transformations in which there are no others."""
    parts = [
        (at, innermost(list(part), at.start)) for part, at in optimizers_in(tree, start)
    ]
    return [x for at, inside in parts for x in inside or [at]]


def _all_states(tree: Any) -> list[Any]:
    """States of transformations, and those inside of them."""
    parts = [[part, *_all_states(list(part))] for part, _ in optimizers_in(tree)]
    return [x for several in parts for x in several]


def optimizer_places(state: tuple[Any, ...]) -> set[int]:
    """Places of optimizers' states among the leaves."""
    return {i for _, at in optimizers_in(state) for i in at}


def optimizers_in(tree: Any, start: int = 0) -> list[tuple[Any, range]]:
    """The parts of a tree that are states of optax's transformations, or ours."""
    parts = spans(tree, is_optimizers, start)
    return [(part, at) for part, at in parts if is_optimizers(part)]


def arguments_of(state: tuple[Any, ...]) -> list[tuple[Any, range]]:
    """Each argument, and the places of its leaves."""
    return [*spans(state, lambda x: x is not state)]


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
    arguments = [at for _, at in arguments_of(found.state)]
    beside = {i for at in arguments if not params.isdisjoint(at) for i in at}
    return beside - optimizer_places(found.state) - {*found.places}
