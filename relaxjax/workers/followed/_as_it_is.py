"""Which numbers of a step stay as they are, which are used, and which have arrived.

A walk of dependences (`relaxjax.workers.followed._dependence`) with marks beside them:

    leaf i       of the state, where that is asked: as it is, if it is moved or added
                 to, and used, where anything else is computed with it
    state        anything in it that is no param
    update c.k   the k-th update of the c-th relaxation, if it is one of models: as it
                 is, until it is added to its param, where it has arrived; or else the
                 first operation on it
    param c.k    a param that this relaxation is given, as it is
    made c.k     a part of the state that it makes
    batch        of the worker's own, along an axis, or as collectives of the step have
                 brought it together (`ANY`)

Numbers that only choose (`select`, `cond`, a product with 0 or 1) change no update. In
a relaxation, or a loop, marks of updates and params end.

Cost: one pass over the equations.
"""

from collections.abc import Collection
from typing import Any

import jax
from jax.extend.core import Literal

from relaxjax._core._jaxprs import programs_of
from relaxjax._core.traced._flows import MOVES
from relaxjax._core.traced._marks import station_of
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._dependence import NOBODYS, Dependence, Own
from relaxjax.workers.followed._looked import Looked

AS_IS, USED, ANY = "(as it is)", "(used)", "(any)"
_FLAG = ("flag", AS_IS)
_OF_FLAGS = frozenset(["mul", "min", "max", "reduce_min", "reduce_max", "pmin", "pmax"])


def marked_results(
    found: Looked, workers: WorkerMesh, asked: Collection[int]
) -> list[Own]:
    """The marks of the results of a step's program; of leaves those at some places."""
    walk, jaxpr = _Walk(workers.axis_name), found.program.jaxpr
    for c, x in enumerate(found.given):
        walk.mark("param", c, x.params)
        walk.mark("made", c, x.made[1])
        if x.at.side == "models":
            walk.mark("update", c, x.made[0])
    batch = frozenset(("batch", axis) for axis in (*workers.axis_name, ANY))
    marks = [
        {"state": i not in found.places, f"leaf {i}": i in asked}
        for i in range(found.states)
    ]
    own = [frozenset((name, AS_IS) for name, so in x.items() if so) for x in marks]
    own += [batch] * (len(jaxpr.invars) - found.states)
    pairs = zip(jaxpr.invars, own, strict=True)
    return walk.of(jaxpr, [x | walk.seeds.get(var, NOBODYS) for var, x in pairs])


class _Walk(Dependence):
    """A walk in which arithmetic is seen on what it is done with."""

    def mark(self, kind: str, call: int, tree: Any) -> None:
        """Marks the variables of a tree, by the number of a relaxation's call."""
        for k, var in enumerate(jax.tree.leaves(tree)):
            if not isinstance(var, Literal):
                own = frozenset([(f"{kind} {call}.{k}", AS_IS)])
                self.seeds[var] = self.seeds.get(var, NOBODYS) | own

    def _equation(
        self, eqn: Any, ins: list[Own], scope: str, decided: Own
    ) -> list[Own]:
        name = eqn.primitive.name
        flags = name in _OF_FLAGS and all(_FLAG in x for x in ins)
        flags |= name == "convert_element_type" and eqn.invars[0].aval.dtype == bool
        if station_of(scope) or name in ("scan", "while"):
            ins = [_used(x) for x in ins]
        else:
            ins = _operands(eqn, ins)
        outs = super()._equation(eqn, ins, scope, decided)
        if station_of(scope):
            outs = [x - {("batch", ANY)} for x in outs]
        return [x | {_FLAG} for x in outs] if flags else outs


def _operands(eqn: Any, ins: list[Own]) -> list[Own]:
    """The marks of operands, after what an equation does with them."""
    name = eqn.primitive.name
    if name in ("add", "add_any"):
        return [_added(ins[0], ins[1], name), _added(ins[1], ins[0], name)]
    if name == "sub":
        return [_added(ins[0], NOBODYS, name), _changed(ins[1], name)]
    if name in ("select_n", "cond"):
        return [_used(ins[0]), *ins[1:]]
    if name == "mul" and any(_FLAG in x for x in ins):
        return [_used(x) if _FLAG in x else x for x in ins]
    if MOVES.fullmatch(name) or [*programs_of(eqn.params)]:
        return ins
    return [_changed(x, name) for x in ins]


def _added(own: Own, other: Own, operation: str) -> Own:
    """With something added to it: an update arrives at its param, or is changed."""
    marks = own - {_FLAG}
    for source, mark in own:
        kind, _, at = source.partition(" ")
        if mark == AS_IS and kind == "update":
            marks -= {(source, mark)}
            if (f"param {at}", AS_IS) not in other:
                marks |= {(source, operation)}
        elif kind == "param" and (f"update {at}", AS_IS) in other:
            marks -= {(source, mark)}  # and the next one comes too late
    return marks


def _changed(own: Own, operation: str) -> Own:
    """With arithmetic done with it."""
    return _used(own) | {
        (source, operation if mark == AS_IS else mark)
        for source, mark in own
        if source.startswith("update ")
    }


def _used(own: Own) -> Own:
    """Without marks of updates and params, and no leaf as it is."""
    return frozenset(
        (source, USED if mark == AS_IS else mark)
        for source, mark in own
        if not source.startswith(("update ", "param ", "flag"))
    )
