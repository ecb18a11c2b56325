"""Next states that are added up, or lost in a branch, as a loss uses its state.

The state of `fsdp.gathered` and `reduce_in_backward` comes back as a gradient
(`relaxjax._core.traced._next_state`). A value of the traced step is

    OTHER    anything
    KEPT     a leaf of the state, as it was
    NEXT     a next state, as it is
    SUM      a sum with one in it, as over microbatches
    LOST     a next state in one branch, and something else in another: zeros

and a leaf of the state that comes out as one of the last two is warned of.

Cost: one pass over the equations.
"""

import warnings
from collections.abc import Sequence
from typing import Any

from relaxjax._core._jaxprs import programs_of, walked
from relaxjax._core._tree import leaf_names
from relaxjax._core.traced._flows import MOVES
from relaxjax._core.traced._next_state import NEXT
from relaxjax.workers.followed._looked import Looked

_OTHER, _KEPT, _NEXT, _SUM, _LOST = range(5)
_SAID = {
    _SUM: "is a sum: its state= is used several times in one loss, as in a scan over "
    "microbatches, and each use delivers all that is owed",
    _LOST: "is zeros where a branch of the loss does not use its state=",
}


def warn_of_sums(found: Looked) -> bool:
    """Warns of a state that a loss uses several times, or in a branch."""
    jaxpr, states = found.program.jaxpr, found.states
    others = len(jaxpr.invars) - states
    outs = _results(jaxpr, [_KEPT] * states + [_OTHER] * others)
    pairs = zip(leaf_names(found.state), outs, strict=False)
    wrong = [(name.partition("/")[2], out) for name, out in pairs if out in _SAID]
    for name, out in wrong[:1]:
        warnings.warn(
            f"data_parallel: the new state {name!r} {_SAID[out]}. Use it once, in "
            "every step: map the microbatches inside of the loss that is gathered, or "
            "add up their gradients (accumulated= of reduce_in_backward)",
            stacklevel=5,
        )
    return bool(wrong)


def _results(jaxpr: Any, ins: Sequence[int]) -> list[int]:
    return walked(jaxpr, ins, _OTHER, _visited)


def _visited(eqn: Any, ins: list[int], scope: str) -> list[int]:
    del scope
    name, count = eqn.primitive.name, len(eqn.outvars)
    if name == "name":
        return [_NEXT] if eqn.params["name"] == NEXT else ins
    if parts := [part.jaxpr for part in programs_of(eqn.params)]:
        each = [_results(part, _for(part, ins)) for part in parts]
        fits = [outs for outs in each if len(outs) == count]
        return [*map(_either, zip(*fits, strict=True))] if fits else [_OTHER] * count
    if name in ("add", "add_any"):
        return [_SUM if max(ins) >= _NEXT else _OTHER]
    return [max(ins) if ins and MOVES.fullmatch(name) else _OTHER] * count


def _for(part: Any, ins: list[int]) -> list[int]:
    """The operands of a program inside; what it has for itself comes first."""
    wanted = len(part.invars)
    return [*ins[max(0, len(ins) - wanted) :], *[_OTHER] * wanted][:wanted]


def _either(outs: Sequence[int]) -> int:
    """What comes out of one of several branches."""
    lost = max(outs) == _NEXT and min(outs) == _OTHER
    return _LOST if lost else max(outs)
