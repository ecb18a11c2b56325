"""A traced program, walked equation by equation, and the bytes that it sends.

Known integers (counters, from the first state on) are computed along the way, so that
a conditional on a counter counts as the branch taken; where the branch depends on data,
the larger one counts, unless it is marked as the usual one. Only what a conditional or
a wanted output looks at is computed, and no program is walked twice.

Cost: O(equations of all programs that differ).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from relaxjax._core._jaxprs import Program, loop_parts, programs_of, scan_parts
from relaxjax._core.traced._usual import usual
from relaxjax.programs._jaxpr_bytes import (
    COLLECTIVES,
    collective_of,
    rounds_of,
    shape_of,
)
from relaxjax.programs._jaxpr_computed import computed, plain
from relaxjax.programs._jaxpr_looked import Looks, looked_at
from relaxjax.programs._questions import Asked, Question, asks, question

_ASKED = 64  # elements of an array that are noted one by one


class WalkResult(NamedTuple):
    """The result of a walk.

    Attributes:
      sent: int64, bytes of each device, shaped like the mesh.
      waves: rounds of messages, by what they are and by how many collectives, one
        after the other, they wait for. Alike and at once, they are one message.
      height: collectives on the longest way through the program.
      known: values of the program's outputs, None where unknown.
    """

    sent: np.ndarray
    waves: dict[tuple[int, str], int]
    height: int
    known: list[Any]

    @property
    def rounds(self) -> int:
        """Messages that wait for each other: a link serves one after the other."""
        return sum(self.waves.values())


class WalkContext(NamedTuple):
    """The mesh of a walk, and what is remembered of programs.

    Attributes:
      sizes: the sizes of the workers' axes.
      walks: the results of earlier walks, with nothing known or wanted.
      looks: what is looked at, by program and wanted outputs.
      asked: what the equations of a step have asked of integers; the caller clears it.
    """

    sizes: dict[str, int]
    walks: dict[core.Jaxpr, WalkResult]
    looks: Looks
    asked: Asked

    def nothing(self) -> np.ndarray:
        """No bytes on any device."""
        return np.zeros(tuple(self.sizes.values()), np.int64)


def walk(
    closed: Program,
    known: list[Any],
    context: WalkContext,
    wanted: Sequence[bool] | None = None,
) -> WalkResult:
    """Bytes sent by a program, and those wanted outputs that can be computed."""
    jaxpr = closed.jaxpr
    wanted = tuple(wanted or [False] * len(jaxpr.outvars))
    looked = looked_at(jaxpr, wanted, context.looks)
    known = [x if use else None for x, use in zip(known, looked.inputs, strict=True)]
    blind = not any(wanted) and all(x is None for x in [*closed.consts, *known])
    if blind and jaxpr in context.walks:
        return context.walks[jaxpr]
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values |= dict(zip(jaxpr.invars, known, strict=True))
    sent, before = context.nothing(), dict.fromkeys(values, 0)
    waves: dict[tuple[int, str], int] = {}

    def read(var):
        return var.val if isinstance(var, core.Literal) else values.get(var)

    for eqn, results in zip(jaxpr.eqns, looked.results, strict=True):
        waits = (before[v] for v in eqn.invars if not isinstance(v, core.Literal))
        begin = max(waits, default=0)
        if results is None:
            before |= dict.fromkeys(eqn.outvars, begin)
            continue
        inputs = [read(var) for var in eqn.invars]
        walked = _equation(eqn, inputs, context, results)
        sent = sent + walked.sent
        for (level, kind), rounds in walked.waves.items():
            place = begin + level, kind
            waves[place] = max(waves.get(place, 0), rounds)
        before |= dict.fromkeys(eqn.outvars, begin + walked.height)
        values |= dict(zip(eqn.outvars, walked.known, strict=True))
    height = max(before.values(), default=0)
    result = WalkResult(sent, waves, height, [read(var) for var in jaxpr.outvars])
    if blind:
        context.walks[jaxpr] = result
    return result


def _equation(
    eqn: core.JaxprEqn,
    known: list[Any],
    context: WalkContext,
    results: tuple[bool, ...],
) -> WalkResult:
    name, unknown = eqn.primitive.name, [None] * len(eqn.outvars)
    inner = list(programs_of(eqn.params))
    if kind := collective_of(eqn, context.sizes):
        sent = COLLECTIVES[kind](eqn, context.sizes)
        rounds = rounds_of(eqn, kind, context.sizes)
        waves = {(0, kind.removesuffix("_invariant")): rounds} if rounds else {}
        return WalkResult(sent, waves, len(waves), unknown)
    if name == "cond":
        _note_choice(eqn, known[0], context.asked)
        return _conditional(eqn.params["branches"], known, context, results)
    if name == "while" and (walked := _at_most_once(eqn, known, context, results)):
        return walked
    if name == "scan":
        consts = known[: scan_parts(eqn)[1]]
        turn = [*consts, *[None] * (len(known) - len(consts))]
        once, length = walk(inner[0], turn, context), eqn.params["length"]
        waves = {(0, f"loop {id(eqn)}"): once.rounds * length} if once.waves else {}
        return WalkResult(once.sent * length, waves, once.height * length, unknown)
    if len(inner) == 1 and len(inner[0].in_avals) == len(known):  # jit, remat, ...
        inputs = _whole(known, inner[0].jaxpr.invars)
        walked = walk(inner[0], inputs, context, results)
        return walked._replace(known=_whole(walked.known, eqn.outvars))
    if inner:
        walks = [walk(j, [None] * len(j.in_avals), context) for j in inner]
        sent = sum((walked.sent for walked in walks), context.nothing())
        if name == "while" and sent.any():
            raise ValueError(
                "wire_bytes: a collective in a loop whose number of turns is not known "
                "when it is traced; use lax.scan or lax.fori_loop with fixed bounds"
            )
        waves = {(0, f"parts {id(eqn)}"): sum(walked.rounds for walked in walks)}
        height = sum(walked.height for walked in walks)
        return WalkResult(sent, waves if height else {}, height, unknown)
    known_now = computed(eqn, known) if any(results) else None
    if known_now and asks(name, shape_of(eqn.outvars[0]).dtype):
        _note(eqn, known, context.asked)
    if any(results) and not known_now:
        known_now = usual(eqn)
    return WalkResult(context.nothing(), {}, 0, known_now or unknown)


def _whole(known: list[Any], variables: Sequence[Any]) -> list[Any]:
    """The values, except those that a mapping cuts or joins on the way."""
    return [
        value if value is None or np.shape(value) == shape_of(var).shape else None
        for value, var in zip(known, variables, strict=True)
    ]


def _at_most_once(
    eqn: core.JaxprEqn,
    known: list[Any],
    context: WalkContext,
    results: tuple[bool, ...],
) -> WalkResult | None:
    """A loop that ends itself in its first turn; None if it may take more.

    It counts as the turn that is taken or not; if that is unknown, as taken.
    """
    condition, body, of_condition, of_body = loop_parts(eqn)
    carry = known[of_condition + of_body :]
    (due,) = walk(condition, [*known[:of_condition], *carry], context, [True]).known
    _note_choice(eqn, due, context.asked)
    if due is not None and not due:
        return WalkResult(context.nothing(), {}, 0, carry)
    read = looked_at(condition.jaxpr, (True,), context.looks).inputs[of_condition:]
    wanted = [a or b for a, b in zip(results, read, strict=True)]
    walked = walk(body, known[of_condition:], context, wanted)
    after = [*known[:of_condition], *walked.known]
    (again,) = walk(condition, after, context, [True]).known
    if again is None or again:
        return None
    return walked if due else walked._replace(known=[None] * len(carry))


def _conditional(
    branches: Sequence[Program],
    known: list[Any],
    context: WalkContext,
    results: tuple[bool, ...],
) -> WalkResult:
    """The branch taken; if that is unknown, the most that any branch sends."""
    index, *operands = known
    if index is not None:
        taken = branches[int(np.clip(int(index), 0, len(branches) - 1))]
        return walk(taken, operands, context, results)
    walks = [walk(branch, operands, context) for branch in branches]
    sent = np.max([walked.sent for walked in walks], axis=0)
    most = max(walks, key=lambda walked: walked.rounds)
    return most._replace(sent=sent, known=[None] * len(most.known))


def _note(eqn: core.JaxprEqn, known: list[Any], asked: Asked) -> None:
    """Notes the numbers that an equation was given; of large arrays, one for all."""
    numbers: list[float] = []
    for x in map(plain, known):
        if x.size > _ASKED:
            numbers.append(hash(x.tobytes()))
        elif x.dtype != bool:
            numbers += x.ravel().tolist()
    made = shape_of(eqn.outvars[0]).dtype
    asked[_place(eqn, asked)] = question(eqn.primitive.name, tuple(numbers), made)


def _note_choice(eqn: core.JaxprEqn, chosen: Any, asked: Asked) -> None:
    """Notes a known choice, as a flag in the state may make it without a number."""
    if chosen is not None:
        asked[_place(eqn, asked)] = Question(eqn.primitive.name, (int(chosen),))


def _place(eqn: core.JaxprEqn, asked: Asked) -> tuple[int, int]:
    return id(eqn), sum(place[0] == id(eqn) for place in asked)
