"""Optimizers that go back, at some of their steps, to params that they remember.

SAM climbs from z for a step or more, and then takes one step from z:

    at s    z <- x,  x <- x + climb
    at b    x <- z + u                      (update = z - x + u)

Models that meet after the step m, s <= m < b, are parted again by b. Numbers of the
state alone decide which steps these are, here as at a relaxation with a period. They
are counted through, and each choice that they make is noted down: factors of 0 and 1,
selections, branches, turns of loops. The sums of an update are then looked at once for
each set of choices (`relaxjax._core.traced._sums`).

Cost: two scans of scalars, and only for an optimizer that goes such ways at all.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from relaxjax._core._checks import is_traced
from relaxjax._core._jaxprs import axis_names_of, programs_of, walked
from relaxjax._core.traced._flows import axes_met
from relaxjax._core.traced._marks import station_of
from relaxjax._core.traced._sums import choosers_of, is_called, place_of

STEPS = 4096
"""How many of them are counted through."""


class Choices(NamedTuple):
    """What the numbers of a state choose in each of the first steps.

    Attributes:
      rows: the sets of choices that occur, each a number by the place of its equation.
      at: int [STEPS], the row of each step.
      meeting: bool [STEPS], whether a relaxation of models communicates in it.
    """

    rows: Sequence[Mapping[str, float]]
    at: np.ndarray
    meeting: np.ndarray


def numbers_of(init: Any) -> list[Any]:
    """Integers of shape () that a program of `init` starts with; None for all else."""
    jaxpr = init.jaxpr
    outs = walked(jaxpr, [None] * len(jaxpr.invars), None, _Numbers())
    pairs = zip(jaxpr.outvars, outs, strict=True)
    values = [v.val if isinstance(v, core.Literal) else x for v, x in pairs]
    return [
        x if jnp.issubdtype(kind.dtype, jnp.integer) else None
        for x, kind in zip(values, init.out_avals, strict=True)
    ]


def choices_of(program: Any, start: Sequence[Any], first: int) -> Choices:
    """The choices that a program makes, of (gradients, state, ..) -> (updates, state).

    Args:
      program: the closed jaxpr.
      start: integers of shape () of the first state; None for its other leaves.
      first: where the state begins, in the arguments as in the results.
    """
    known = [i for i, x in enumerate(start) if x is not None]
    places: dict[str, int] = {}
    rest = [None] * (len(program.in_avals) - first - len(start))

    def step(numbers: Any, _: Any = None) -> Any:
        state, walk = dict(zip(known, numbers, strict=True)), _Numbers()
        ins = [None] * first + [state.get(i) for i in range(len(start))] + rest
        outs = walked(program.jaxpr, ins, None, walk)[first:]
        places.update(walk.chosen)
        values = [jnp.asarray(x, jnp.float32) for x in walk.values]
        return [outs[i] for i in known], (values, jnp.asarray(walk.meets))

    begun = [jnp.asarray(start[i]) for i in known]
    later = jax.eval_shape(lambda x: step(x)[0], begun)
    if None in later:  # a number that is not followed says nothing of later steps
        lost = {i for i, x in zip(known, later, strict=True) if x is None}
        left = [None if i in lost else x for i, x in enumerate(start)]
        return choices_of(program, left, first)
    _, (values, meeting) = jax.jit(lambda x: lax.scan(step, x, length=STEPS))(begun)
    table = np.stack([np.zeros(STEPS), *map(np.asarray, values)], axis=1)
    rows, at = np.unique(table, axis=0, return_inverse=True)
    named = [{place: row[1 + i] for place, i in places.items()} for row in rows]
    return Choices(named, at.ravel(), np.asarray(meeting))


def undone(meeting: np.ndarray, taken: np.ndarray, back: np.ndarray) -> bool:
    """Whether a step back undoes a meeting: bools of each step, as `Choices` has them.

    `taken` are the steps that remember the params as they were before it.
    """
    since: bool | np.bool_ = False
    for meets, takes, returns in zip(meeting, taken, back, strict=True):
        if returns and since:
            return True
        since = bool(meets) or (since and not takes)
    return False


class _Numbers:
    """Scalars that follow from the numbers of the state; None for all else.

    What is computed again for each leaf is one value.

    Attributes:
      values: the numbers that choose.
      chosen: which of them, by the places of the equations where one does.
      meets: whether a relaxation of models communicates.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.chosen: dict[str, int] = {}
        self.meets: Any = False
        self._made: dict[Any, Sequence[Any]] = {}  # whose ids are keys, so it keeps all

    def __call__(self, eqn: Any, ins: list[Any], scope: str) -> Sequence[Any]:
        operands = list(zip(eqn.invars, ins, strict=True))
        ins = [v.val if isinstance(v, core.Literal) else x for v, x in operands]
        place, parts = place_of(eqn, scope), list(programs_of(eqn.params))
        number = next((ins[i] for i in choosers_of(eqn) if ins[i] is not None), None)
        scalars = all(v.aval.shape == () for v in eqn.invars)
        known = bool(ins) and scalars and not any(x is None for x in ins)
        if is_traced(number) and not known:
            self._choose(place, number)
        if is_called(eqn):
            return walked(parts[0].jaxpr, ins, None, self, place)
        if (at := station_of(scope)) and at.side == "models":
            self._meet(eqn, parts, number, frozenset(at.axes))
        if known and not axis_names_of(eqn) and not eqn.effects:
            return self._result(eqn, ins)
        if eqn.primitive.name == "broadcast_in_dim":
            return ins[:1]
        return [None] * len(eqn.outvars)

    def _choose(self, place: str, number: Any) -> None:
        same = (i for i, x in enumerate(self.values) if x is number)
        self.chosen[place] = index = next(same, len(self.values))
        self.values[index:] = self.values[index:] or [number]

    def _result(self, eqn: Any, ins: list[Any]) -> Sequence[Any]:
        traced = [id(x) if is_traced(x) else np.asarray(x).item() for x in ins]
        key = (eqn.primitive.name, str(eqn.params), *traced)
        if key not in self._made:
            out = eqn.primitive.bind(*ins, **eqn.params)
            self._made[key] = out if eqn.primitive.multiple_results else [out]
        return self._made[key]

    def _meet(
        self, eqn: Any, parts: Sequence[Any], number: Any, axes: frozenset[str]
    ) -> None:
        """Models meet in this equation, if a number does not choose otherwise."""
        if not axes_met([eqn], axes):
            return
        if number is None:
            self.meets = True
        elif eqn.primitive.name == "cond":
            talks = [bool(axes_met(part.jaxpr.eqns, axes)) for part in parts]
            self.meets |= jnp.asarray(talks)[jnp.asarray(number, int)]
        else:
            self.meets |= jnp.asarray(number, bool)
