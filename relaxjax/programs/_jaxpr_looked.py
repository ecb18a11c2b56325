"""What of a traced program somebody looks at: a conditional in it, or who calls it.

Only that is worth computing while a program is walked (`relaxjax.programs._jaxpr`).

Cost: O(equations of all programs that differ), once for each set of wanted outputs.
"""

from typing import NamedTuple

from jax.extend import core

from relaxjax._core._jaxprs import Program, programs_of
from relaxjax.programs._jaxpr_bytes import shape_of


class Looked(NamedTuple):
    """What of a program somebody looks at: a conditional in it, or who calls it.

    Attributes:
      inputs: for each input.
      results: for each equation, for each of its results.
    """

    inputs: tuple[bool, ...]
    results: tuple[tuple[bool, ...], ...]


Looks = dict[tuple[core.Jaxpr, tuple[bool, ...]], Looked]
"""By program and wanted outputs."""


def looked_at(jaxpr: core.Jaxpr, wanted: tuple[bool, ...], looks: Looks) -> Looked:
    """Where the values of a program go that conditionals or wanted outputs look at."""
    key = jaxpr, wanted
    if key not in looks:
        pairs = zip(jaxpr.outvars, wanted, strict=True)
        looked = {v for v, wish in pairs if wish and not isinstance(v, core.Literal)}
        results = []
        for eqn in reversed(jaxpr.eqns):
            results.append(tuple(v in looked for v in eqn.outvars))
            inputs = zip(eqn.invars, _inputs(eqn, results[-1], looks), strict=True)
            looked |= {v for v, is_looked_at in inputs if is_looked_at}
        inputs = tuple(v in looked for v in jaxpr.invars)
        looks[key] = Looked(inputs, tuple(results[::-1]))
    return looks[key]


def _inputs(eqn: core.JaxprEqn, results: tuple[bool, ...], looks: Looks) -> list[bool]:
    """The inputs of an equation that its results and conditionals look at."""
    name, inner = eqn.primitive.name, list(programs_of(eqn.params))
    if name == "cond":
        each = [looked_at(j.jaxpr, results, looks).inputs for j in inner]
        looked = [True, *map(any, zip(*each, strict=True))]
    elif name == "scan":
        body, consts = inner[0].jaxpr, scan_consts(eqn, inner[0])
        nothing = (False,) * len(body.outvars)
        kept = looked_at(body, nothing, looks).inputs[:consts]
        looked = [*kept, *[False] * (len(eqn.invars) - consts)]
    elif name == "while":
        condition, body, of_condition, of_body = loop_parts(eqn)
        ends = looked_at(condition.jaxpr, (True,), looks).inputs
        wish = tuple(map(any, zip(results, ends[of_condition:], strict=True)))
        turn = looked_at(body.jaxpr, wish, looks).inputs
        carry = map(any, zip(wish, turn[of_body:], strict=True))
        looked = [*ends[:of_condition], *turn[:of_body], *carry]
    elif len(inner) == 1 and len(inner[0].in_avals) == len(eqn.invars):
        looked = list(looked_at(inner[0].jaxpr, results, looks).inputs)
    else:
        looked = [any(results) and not inner] * len(eqn.invars)
    pairs = zip(eqn.invars, looked, strict=True)
    return [one and not isinstance(v, core.Literal) for v, one in pairs]


def scan_consts(eqn: core.JaxprEqn, body: Program) -> int:
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


def loop_parts(
    eqn: core.JaxprEqn,
) -> tuple[Program, Program, int, int]:
    """Condition and body of a `while`, and how many operands each has for itself."""
    of = eqn.params
    return of["cond_jaxpr"], of["body_jaxpr"], of["cond_nconsts"], of["body_nconsts"]
