"""What of a traced program somebody looks at: a conditional in it, or who calls it.

Only that is worth computing while a program is walked (`relaxjax.programs._jaxpr`).

Cost: O(equations of all programs that differ), once for each set of wanted outputs.
"""

from typing import NamedTuple

from jax.extend import core

from relaxjax._core._jaxprs import loop_parts, programs_of, scan_parts
from relaxjax._core.traced._usual import usual
from relaxjax.programs._jaxpr_bytes import may_send


class Looked(NamedTuple):
    """What of a program somebody looks at: a conditional in it, or who calls it.

    Attributes:
      inputs: for each input.
      results: for each equation, for each of its results; None for an equation that
        sends nothing and is not looked at.
    """

    inputs: tuple[bool, ...]
    results: tuple[tuple[bool, ...] | None, ...]


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
            each = tuple(v in looked for v in eqn.outvars)
            results.append(each if any(each) or _sends(eqn, looks) else None)
            if results[-1] is None:
                continue
            inputs = zip(eqn.invars, _inputs(eqn, each, looks), strict=True)
            looked |= {v for v, is_looked_at in inputs if is_looked_at}
        inputs = tuple(v in looked for v in jaxpr.invars)
        looks[key] = Looked(inputs, tuple(results[::-1]))
    return looks[key]


def _sends(eqn: core.JaxprEqn, looks: Looks) -> bool:
    """Whether there is a collective in it, on whatever branch."""
    programs = [p.jaxpr for p in programs_of(eqn.params)]
    inner = (looked_at(j, (False,) * len(j.outvars), looks).results for j in programs)
    return may_send(eqn) or any(map(any, inner))


def _inputs(eqn: core.JaxprEqn, results: tuple[bool, ...], looks: Looks) -> list[bool]:
    """The inputs of an equation that its results and conditionals look at."""
    name, inner = eqn.primitive.name, list(programs_of(eqn.params))
    if usual(eqn):  # true, whatever goes in
        return [False] * len(eqn.invars)
    if name == "cond":
        each = [looked_at(j.jaxpr, results, looks).inputs for j in inner]
        looked = [True, *map(any, zip(*each, strict=True))]
    elif name == "scan":
        program, consts, _ = scan_parts(eqn)
        body = program.jaxpr
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
