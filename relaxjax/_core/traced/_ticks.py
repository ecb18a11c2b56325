"""How often a clock ticks in one traced step: in a loop, or one tick after the other.

A host that sets phases between the steps counts one tick a step. Where a step takes
several, as a loop over microbatches with an update each does, only counts know.

    ticks so far    of what comes of a count: that of its operands, and one more for the
                    addition of a tick

Cost: a walk over the equations.
"""

from collections.abc import Sequence
from typing import Any

from relaxjax._core._jaxprs import programs_of, walked
from relaxjax._core._phases import TICK

_LOOPS = ("scan", "while")


def ticks_often(jaxpr: Any) -> bool:
    """Whether a traced step takes several steps of one clock."""
    walk = _Ticks()
    walk.of(jaxpr, [0] * len(jaxpr.invars))
    return walk.often


class _Ticks:
    """The walk; `often` is set where a tick is in a loop, or follows another."""

    def __init__(self) -> None:
        self.often = False

    def of(self, jaxpr: Any, ins: Sequence[int], scope: str = "") -> list[int]:
        return walked(jaxpr, ins, 0, self._visit, scope)

    def _visit(self, eqn: Any, ins: list[int], scope: str) -> list[int]:
        most, name, count = max(ins, default=0), eqn.primitive.name, len(eqn.outvars)
        parts = [part.jaxpr for part in programs_of(eqn.params)]
        if name in _LOOPS:  # what ticks in a turn ticks often
            begun = [self.of(part, [0] * len(part.invars), scope) for part in parts]
            self.often |= any(map(any, begun))
            return [most] * count
        given = ins[1:] if name == "cond" else ins
        sizes = len(given), count
        fit = [x for x in parts if (len(x.invars), len(x.outvars)) == sizes]
        if fit:
            results = [self.of(part, given, scope) for part in fit]
            return [max(several) for several in zip(*results, strict=True)]
        ticks = TICK in scope and name == "add"
        self.often |= ticks and most > 0
        return [most + ticks] * count
