"""A traced program, walked equation by equation, and the bytes that it sends.

Known integers (counters, from the first state on) are computed along the way, so that
a conditional on a counter counts as the branch taken; where the branch depends on data,
the larger one counts. Only what a conditional or a wanted result looks at is computed,
and no program is walked twice.

Cost: O(equations of all programs that differ).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from relaxjax._core._jaxprs import programs_of
from relaxjax._core._tree import is_key
from relaxjax.programs._jaxpr_bytes import COLLECTIVES, shape_of

_LARGEST_KNOWN = 4096  # elements; branches depend on counters and small tables


class WalkResult(NamedTuple):
    """The result of a walk.

    Attributes:
      sent: int64, bytes of each device, shaped like the mesh.
      known: values of the program's outputs, None where unknown.
    """

    sent: np.ndarray
    known: list[Any]


class WalkContext(NamedTuple):
    """The mesh of a walk, and what is remembered of programs.

    Attributes:
      sizes: the sizes of the workers' axes.
      walks: the results of earlier walks, with nothing known or wanted.
      choices: whether a program has a conditional.
    """

    sizes: dict[str, int]
    walks: dict[core.Jaxpr, WalkResult]
    choices: dict[core.Jaxpr, bool]

    def nothing(self) -> np.ndarray:
        """No bytes on any device."""
        return np.zeros(tuple(self.sizes.values()), np.int64)


def walk(
    closed: core.ClosedJaxpr,
    known: list[Any],
    context: WalkContext,
    wanted: bool = True,
) -> WalkResult:
    """Bytes sent by a program; if `wanted`, also the outputs that can be computed."""
    jaxpr = closed.jaxpr
    blind = not wanted and all(value is None for value in [*closed.consts, *known])
    if blind and jaxpr in context.walks:
        return context.walks[jaxpr]
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values |= dict(zip(jaxpr.invars, known, strict=True))
    sent = context.nothing()

    def read(var):
        return var.val if isinstance(var, core.Literal) else values.get(var)

    outputs = _computable(jaxpr, values) if wanted else set()
    for eqn, needed in zip(jaxpr.eqns, _needed(jaxpr, context, outputs), strict=True):
        inputs = [read(var) if needed else None for var in eqn.invars]
        walked = _equation(eqn, inputs, context, needed)
        sent = sent + walked.sent
        values |= dict(zip(eqn.outvars, walked.known, strict=True))
    result = WalkResult(sent, [read(var) for var in jaxpr.outvars])
    if blind:
        context.walks[jaxpr] = result
    return result


def _computable(jaxpr: core.Jaxpr, values: dict[Any, Any]) -> set[Any]:
    """The outputs that may be computed: they depend on nothing unknown, as far as seen.

    What programs inside an equation need is not looked at.
    """
    known = {var for var, value in values.items() if value is not None}
    for eqn in jaxpr.eqns:
        inputs = {v for v in eqn.invars if not isinstance(v, core.Literal)}
        if inputs <= known or any(programs_of(eqn.params)):
            known.update(eqn.outvars)
    return {v for v in jaxpr.outvars if not isinstance(v, core.Literal)} & known


def _needed(jaxpr: core.Jaxpr, context: WalkContext, outputs: set[Any]) -> list[bool]:
    """For each equation, whether a conditional or one of the outputs looks at it."""
    looked_at, needed = set(outputs), []
    for eqn in reversed(jaxpr.eqns):
        needed.append(_chooses(eqn, context) or not looked_at.isdisjoint(eqn.outvars))
        if needed[-1]:
            looked_at |= {v for v in eqn.invars if not isinstance(v, core.Literal)}
    return needed[::-1]


def _chooses(eqn: core.JaxprEqn, context: WalkContext) -> bool:
    """Whether an equation is a conditional, or has one in a program of its own."""

    def inside(jaxpr: core.Jaxpr) -> bool:
        if jaxpr not in context.choices:
            context.choices[jaxpr] = any(_chooses(e, context) for e in jaxpr.eqns)
        return context.choices[jaxpr]

    programs = programs_of(eqn.params)
    return eqn.primitive.name == "cond" or any(inside(p.jaxpr) for p in programs)


def _equation(
    eqn: core.JaxprEqn, known: list[Any], context: WalkContext, needed: bool
) -> WalkResult:
    name, unknown = eqn.primitive.name, [None] * len(eqn.outvars)
    inner = list(programs_of(eqn.params))
    if name in COLLECTIVES:
        return WalkResult(COLLECTIVES[name](eqn, context.sizes), unknown)
    if name == "cond":
        return _conditional(eqn.params["branches"], known, context)
    if name == "scan":
        consts = known[: _scan_consts(eqn, inner[0])]
        turn = [*consts, *[None] * (len(known) - len(consts))]
        sent = walk(inner[0], turn, context, wanted=False).sent
        return WalkResult(sent * eqn.params["length"], unknown)
    if len(inner) == 1 and len(inner[0].in_avals) == len(known):  # jit, remat, ...
        walked = walk(inner[0], _whole(known, inner[0].jaxpr.invars), context, needed)
        return WalkResult(walked.sent, _whole(walked.known, eqn.outvars))
    if inner:
        walks = [walk(j, [None] * len(j.in_avals), context, False) for j in inner]
        sent = sum((walked.sent for walked in walks), context.nothing())
        if name == "while" and sent.any():
            raise ValueError(
                "wire_bytes: a collective in a loop whose number of turns is not known "
                "when it is traced; use lax.scan or lax.fori_loop with fixed bounds"
            )
        return WalkResult(sent, unknown)
    return WalkResult(context.nothing(), (needed and _compute(eqn, known)) or unknown)


def _whole(known: list[Any], variables: Sequence[Any]) -> list[Any]:
    """The values, except those that a mapping cuts or joins on the way."""
    return [
        value if value is None or np.shape(value) == shape_of(var).shape else None
        for value, var in zip(known, variables, strict=True)
    ]


def _scan_consts(eqn: core.JaxprEqn, body: core.ClosedJaxpr) -> int:
    """Number of a scan's operands that are the same in each turn.

    The operands are constants, carry and slices, the results carry and slices; slices
    lose an axis in the body.
    """
    ins = zip(eqn.invars, body.jaxpr.invars, strict=True)
    outs = zip(eqn.outvars, body.jaxpr.outvars, strict=True)
    whole_ins, whole_outs = (
        sum(len(shape_of(a).shape) == len(shape_of(b).shape) for a, b in pairs)
        for pairs in (ins, outs)
    )
    return whole_ins - whole_outs


def _conditional(
    branches: Sequence[core.ClosedJaxpr], known: list[Any], context: WalkContext
) -> WalkResult:
    """The branch taken; if that is unknown, the most that any branch sends."""
    index, *operands = known
    if index is not None:
        taken = branches[int(np.clip(int(index), 0, len(branches) - 1))]
        return walk(taken, operands, context)
    walks = [walk(branch, operands, context) for branch in branches]
    sent = np.max([walked.sent for walked in walks], axis=0)
    return WalkResult(sent, [None] * len(walks[0].known))


def _compute(eqn: core.JaxprEqn, known: list[Any]) -> list[Any] | None:
    """The outputs of a primitive all of whose inputs are known, if they are small."""
    if any(value is None for value in known) or eqn.primitive.name == "axis_index":
        return None
    if sum(shape_of(var).size for var in eqn.outvars) > _LARGEST_KNOWN:
        return None
    out = eqn.primitive.bind(*map(_without_mesh, known), **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _without_mesh(value: Any) -> Any:
    """The value outside a mapping: constants remember where they were traced."""
    if isinstance(value, jax.Array) and not is_key(value):
        return np.asarray(value)
    return value
