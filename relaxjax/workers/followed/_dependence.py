"""On whose own numbers each value of a traced program depends, decisions included.

`relaxjax._core.traced._flows` follows values and no decisions; this walk follows both.
A value carries pairs (source, axis), such as ("gradients", "data"), as long as it may
differ between the workers along the axis because the source does:

    result of an equation      the pairs of all its operands
    of a branch or a loop      besides, those of what decides
    collectives, relaxations   without the pairs of their axes

A collective over an axis, in a branch or a loop that is decided by what differs along
that axis, is one that some workers enter and others do not.

Cost: one pass over the equations, and one more for each round until what loops and
states carry no longer grows (two, as a rule).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax.numpy as jnp

from relaxjax._core._jaxprs import (
    axis_names_of,
    loop_parts,
    met_in,
    programs_of,
    scan_parts,
    walked,
)
from relaxjax._core._tree import is_key
from relaxjax._core.traced._flows import axes_met
from relaxjax._core.traced._marks import doer_of

Own = frozenset[tuple[str, str]]
NOBODYS: Own = frozenset()


class Dependence:
    """One program, looked at for some axes.

    Attributes:
      alone: names of relaxations, or of collectives outside of any, that a worker's own
        numbers decide about.
      seeds: what variables depend on besides, by definition.
      entered: the pairs of numbers that went into a relaxation, or a collective, of
        their axis; those of keys that went in as keys are not among them.
      ends: primitives whose results depend on nothing, for what is asked.
      trusting: whether what meets in one branch has met, as every H steps.
      index: the source of what depends on a worker's place along an axis, if asked;
        places at which something is written or read are no numbers.
    """

    def __init__(self, axes: Sequence[str]):
        self.axes = frozenset(axes)
        self.alone: set[str] = set()
        self.seeds: dict[Any, Own] = {}
        self.entered: Own = NOBODYS
        self.ends: frozenset[str] = frozenset()
        self.index: str | None = None
        self.trusting = False

    def steps(self, program: Any, ins: Sequence[Own], carried: range) -> list[Own]:
        """The results of a step, at `carried` the arguments of the next one."""
        ins = list(ins)
        while True:
            outs = self.of(program.jaxpr, ins)
            later = [x | outs[i] if i in carried else x for i, x in enumerate(ins)]
            if later == ins:
                return outs
            ins = later

    def of(
        self,
        jaxpr: Any,
        ins: Sequence[Own],
        scope: str = "",
        decided: Own = NOBODYS,
    ) -> list[Own]:
        """The results of a program, which runs or not by what `decided` says."""

        def visit(eqn: Any, ins: list[Own], scope: str) -> list[Own]:
            outs = self._equation(eqn, ins, scope, decided)
            pairs = zip(eqn.outvars, outs, strict=True)
            return [own | self.seeds.get(var, NOBODYS) for var, own in pairs]

        return walked(jaxpr, ins, NOBODYS, visit, scope)

    def _equation(
        self, eqn: Any, ins: list[Own], scope: str, decided: Own
    ) -> list[Own]:
        name, count = eqn.primitive.name, len(eqn.outvars)
        if name in self.ends:
            return [NOBODYS] * count
        at = doer_of(scope)
        if met := at.axes if at else met_in(scope):
            self._enter(eqn, ins, met)
            self._meet(at.name if at else name, axes_met([eqn], self.axes), decided)
            return [_without(_join(ins), met)] * count

        def walk(part: Any, ins: Sequence[Own], by: Own = NOBODYS) -> list[Own]:
            return self.of(part.jaxpr, ins, scope, decided | by)

        if name == "cond":
            return self._cond(eqn, ins, walk)
        if name in _LOOPS:
            return _LOOPS[name](eqn, ins, walk)
        if parts := list(programs_of(eqn.params)):
            return _inside(parts, ins, count, walk)
        if name == "axis_index" and self.index:
            return [frozenset((self.index, axis) for axis in axis_names_of(eqn))]
        if self.index and name in _AT_PLACES:
            ins = [
                _but(self.index, x, var) for x, var in zip(ins, eqn.invars, strict=True)
            ]
        met = axes_met([eqn], self.axes)
        self._enter(eqn, ins, met)
        self._meet(name, met, decided)
        each = (met or name == "optimization_barrier") and len(ins) == count
        return [_without(x, met) for x in (ins if each else [_join(ins)] * count)]

    def _cond(self, eqn: Any, ins: list[Own], walk: "Walk") -> list[Own]:
        by, *rest = ins
        branches = eqn.params["branches"]
        results = [walk(branch, rest, by) for branch in branches]
        outs = [_join([by, *outs]) for outs in zip(*results, strict=True)]
        if self.trusting:
            for branch, owns in zip(branches, results, strict=True):
                met = axes_met(branch.jaxpr.eqns, self.axes)
                pairs = zip(outs, owns, strict=True)
                outs = [_without(x, met - {axis for _, axis in y}) for x, y in pairs]
        return outs

    def _enter(self, eqn: Any, ins: list[Own], axes: Collection[str]) -> None:
        if not axes:
            return
        pairs = zip(eqn.invars, ins, strict=True)
        numbers = _join([own for var, own in pairs if not is_key(var.aval)])
        self.entered |= frozenset(x for x in numbers if x[1] in axes)

    def _meet(self, name: str, met: frozenset[str], decided: Own) -> None:
        if any(axis in met for _, axis in decided):
            self.alone.add(name)


Walk = Callable[..., list[Own]]


def _while(eqn: Any, ins: list[Own], walk: Walk) -> list[Own]:
    condition, body, first, more = loop_parts(eqn)
    second = first + more
    asked, read, carry = ins[:first], ins[first:second], ins[second:]
    while True:
        (by,) = walk(condition, [*asked, *carry])
        outs = walk(body, [*read, *carry], by)
        later = [_join([x, y, by]) for x, y in zip(carry, outs, strict=True)]
        if later == carry:
            return carry
        carry = later


def _scan(eqn: Any, ins: list[Own], walk: Walk) -> list[Own]:
    body, consts, carried = scan_parts(eqn)
    second = consts + carried
    read, carry, along = ins[:consts], ins[consts:second], ins[second:]
    while True:
        outs = walk(body, [*read, *carry, *along])
        later = [x | y for x, y in zip(carry, outs, strict=False)]
        if later == carry:
            return outs
        carry = later


_AT_PLACES = frozenset(["dynamic_slice", "dynamic_update_slice", "gather", "scatter"])
_LOOPS = {"while": _while, "scan": _scan}


def _inside(parts: Sequence[Any], ins: Any, count: int, walk: Walk) -> list[Own]:
    """The results of an equation that runs a program, or programs in its own way."""
    jaxprs = [part.jaxpr for part in parts]
    if len(parts) == 1 and len(jaxprs[0].invars) == len(ins):
        outs = walk(parts[0], ins)
        if len(outs) == count:
            return outs
    all_in = _join(ins)
    results = [walk(part, [all_in] * len(part.jaxpr.invars)) for part in parts]
    return [_join([all_in, *(x for outs in results for x in outs)])] * count


def _but(source: str, own: Own, var: Any) -> Own:
    """Without the pairs of a source, if it is about places."""
    is_place = jnp.issubdtype(var.aval.dtype, jnp.integer)
    return frozenset(x for x in own if x[0] != source) if is_place else own


def _join(owns: Sequence[Own]) -> Own:
    return NOBODYS.union(*owns)


def _without(own: Own, axes: Any) -> Own:
    return frozenset(x for x in own if x[1] not in axes)
