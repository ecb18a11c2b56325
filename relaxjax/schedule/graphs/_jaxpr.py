"""From the equations of a jaxpr to operations and what they need.

Each equation becomes an operation; changes of view (reshape, broadcast) are free and
pass their needs on. Functions inside functions (jit, custom derivatives, remat,
shard_map) are walked as if written out. The scalar function of a reduction or a scatter
belongs to its equation.

    scan     the first iteration is written out, as its operations can start before all
             parameters have come; the others are one operation that needs all of it
    cond     costs its most expensive branch
    while    is charged one iteration and counts as not attributed, since nobody knows
             how many there will be

Cost: O(equations), times the depth of nested scans.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from jax.extend.core import Jaxpr, JaxprEqn

from relaxjax._core._checks import check_type
from relaxjax._core._jaxprs import programs_of, walked
from relaxjax.schedule.graphs._flops import FREE, SCALAR_FUNCTION
from relaxjax.schedule.graphs._oracle import Estimate, Oracle

Needs = tuple[str, ...]


@dataclass
class Tape:
    """The operations recorded so far, in program order.

    Attributes:
      oracle: gives the time of each equation.
      reserved: names of parameters, which no operation may bear.
      ops: seconds and needs by name.
      attributed: by name, the seconds that rest on a rule or a measurement.
      counts: how often each base name was asked for.
    """

    oracle: Oracle
    reserved: Collection[str]
    ops: dict[str, tuple[float, Needs]] = field(default_factory=dict)
    attributed: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def name(self, scope: str, primitive: str) -> str:
        """A fresh name for an operation in a scope."""
        base = "/".join(filter(None, [*scope.split("/"), primitive]))
        count = self.counts.get(base, 0) + 1
        while (name := base if count == 1 else f"{base}.{count}") in self.reserved:
            count += 1
        self.counts[base] = count
        return name

    def add(self, name: str, estimate: Estimate, needs: Needs) -> Needs:
        """Records an operation and returns what its users need: itself."""
        check_type("the oracle's answer", estimate, Estimate, "return Estimate(s, s)")
        self.ops[name] = (estimate.seconds, needs)
        self.attributed[name] = estimate.attributed
        return (name,)


def walk(jaxpr: Jaxpr, inputs: Sequence[Needs], tape: Tape, scope: str) -> list[Needs]:
    """Records the equations on the tape; from each input's needs to each output's."""
    return walked(jaxpr, inputs, (), partial(_record, tape), scope)


def _record(
    tape: Tape, eqn: JaxprEqn, inputs: Sequence[Needs], scope: str
) -> Sequence[Needs]:
    """Records one equation and returns what each of its results needs."""
    primitive = eqn.primitive.name
    if primitive in FREE:
        return [_union(inputs)] * len(eqn.outvars)
    if primitive == "scan":
        return _scan(eqn, inputs, tape, scope)
    inner = _inner(eqn)
    if len(inner) == 1 and len(inner[0].invars) == len(inputs) and primitive != "while":
        return walk(inner[0], inputs, tape, scope)
    name = tape.name(scope, primitive)
    needs = tape.add(name, _estimate(name, eqn, tape.oracle), _union(inputs))
    return [needs] * len(eqn.outvars)


def _scan(
    eqn: JaxprEqn, inputs: Sequence[Needs], tape: Tape, scope: str
) -> Sequence[Needs]:
    (body,) = _inner(eqn)
    others = eqn.params["length"] - 1
    if others < 0:  # nothing runs: the carry comes out as it went in
        return [_union(inputs)] * len(eqn.outvars)
    first = walk(body, inputs, tape, scope)
    if not others:
        return first
    name = tape.name(scope, "scan")
    rest = _sum([_total(body, name, tape.oracle)], times=others)
    needs = tape.add(name, rest, _union([*first, *inputs]))
    return [needs] * len(eqn.outvars)


def _estimate(name: str, eqn: JaxprEqn, oracle: Oracle) -> Estimate:
    """Time of one equation, including everything inside it."""
    inner = [_total(jaxpr, name, oracle) for jaxpr in _inner(eqn)]
    if not inner:
        return oracle(name, eqn)
    if eqn.primitive.name == "cond":
        return max(inner)
    if eqn.primitive.name == "while":
        return Estimate(sum(e.seconds for e in inner), 0.0)
    return _sum(inner, eqn.params["length"] if eqn.primitive.name == "scan" else 1)


def _total(jaxpr: Jaxpr, name: str, oracle: Oracle) -> Estimate:
    """Time of all equations of a jaxpr, one after the other."""
    costly = [eqn for eqn in jaxpr.eqns if eqn.primitive.name not in FREE]
    return _sum([_estimate(f"{name}/{e.primitive.name}", e, oracle) for e in costly])


def _sum(parts: list[Estimate], times: int = 1) -> Estimate:
    seconds = times * sum(part.seconds for part in parts)
    return Estimate(seconds, times * sum(part.attributed for part in parts))


def _inner(eqn: JaxprEqn) -> list[Jaxpr]:
    """Functions among the equation's parameters, except functions of scalars."""
    if eqn.primitive.name.startswith(SCALAR_FUNCTION):
        return []
    return [part.jaxpr for part in programs_of(eqn.params)]


def _union(inputs: Sequence[Needs]) -> Needs:
    return tuple(dict.fromkeys(need for needs in inputs for need in needs))
