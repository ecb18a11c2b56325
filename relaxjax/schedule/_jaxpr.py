"""Operations and their needs, from the jaxpr of a user's function.

Each equation becomes an operation; changes of view (reshape, broadcast) are free and
pass their needs on. Functions inside functions (jit, custom derivatives, remat,
shard_map) are walked as if written out. The scalar function of a reduction or a
scatter is not one of these: it belongs to its equation. Of a scan over layers the
first iteration is written out, as its operations can start before all parameters have
come, and the others are one operation that needs all of the first. A cond costs its
dearest branch; a while loop is charged one iteration and counts as not attributed,
since nobody knows how many there will be.

Cost: O(equations), times the depth of nested scans.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from relaxjax._core._checks import check_type
from relaxjax.schedule._flops import FREE, SCALAR_FUNCTION
from relaxjax.schedule._oracle import Estimate, Oracle

Needs = tuple[str, ...]


@dataclass
class Tape:
    """Operations in program order, as the walk goes on.

    Attributes:
        oracle: gives the time of each equation.
        ops: seconds and needs by name.
        attributed: seconds by name that rest on a rule or a measurement.
        taken: names of parameters, which no operation may bear.
        counts: how often a name was wanted.
    """

    oracle: Oracle
    ops: dict[str, tuple[float, Needs]] = field(default_factory=dict)
    attributed: dict[str, float] = field(default_factory=dict)
    taken: Collection[str] = ()
    counts: dict[str, int] = field(default_factory=dict)

    def name(self, scope: str, primitive: str) -> str:
        """A fresh name for an operation.

        Args:
            scope: the name stack around it.
            primitive: what it does.
        """
        base = "/".join(part for part in (scope, primitive) if part)
        count = self.counts.get(base, 0) + 1
        while (name := base if count == 1 else f"{base}.{count}") in self.taken:
            count += 1
        self.counts[base] = count
        return name

    def add(self, name: str, estimate: Estimate, needs: Needs) -> Needs:
        """Records an operation and returns what its users need: itself.

        Args:
            name: from `name`.
            estimate: its time.
            needs: names of parameters and operations.
        """
        check_type("the oracle's answer", estimate, Estimate, "return Estimate(s, s)")
        self.ops[name] = (estimate.seconds, needs)
        self.attributed[name] = estimate.attributed
        return (name,)


def walk(jaxpr: Jaxpr, inputs: Sequence[Needs], tape: Tape, scope: str) -> list[Needs]:
    """Records the equations of `jaxpr` on the tape.

    Args:
        jaxpr: an open jaxpr; its constants need nothing.
        inputs: for each input variable what it needs.
        tape: to be written on.
        scope: the name stack around.

    Returns:
        For each output what it needs.
    """
    env: dict[Var, Needs] = dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Var | Literal) -> Needs:
        return () if isinstance(atom, Literal) else env.get(atom, ())

    for eqn in jaxpr.eqns:
        given = [read(v) for v in eqn.invars]
        for var, needs in zip(eqn.outvars, _step(eqn, given, tape, scope), strict=True):
            env[var] = needs
    return [read(v) for v in jaxpr.outvars]


def _step(
    eqn: JaxprEqn, inputs: Sequence[Needs], tape: Tape, scope: str
) -> Sequence[Needs]:
    stack = str(eqn.source_info.name_stack)
    scope = "/".join(part for part in (scope, stack) if part)
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
    if others < 0:  # nothing runs: what is carried comes out as it went in
        return [_union(inputs)] * len(eqn.outvars)
    first = walk(body, inputs, tape, scope)
    if not others:
        return first
    name = tape.name(scope, "scan")
    one = _total(body, name, tape.oracle)
    rest = Estimate(others * one.seconds, others * one.attributed)
    needs = tape.add(name, rest, _union([*first, *inputs]))
    return [needs] * len(eqn.outvars)


def _estimate(name: str, eqn: JaxprEqn, oracle: Oracle) -> Estimate:
    """Time of one equation, with all that is inside it."""
    inner = [_total(jaxpr, name, oracle) for jaxpr in _inner(eqn)]
    if not inner:
        return oracle(name, eqn)
    if eqn.primitive.name == "cond":
        return max(inner)
    if eqn.primitive.name == "while":
        return Estimate(sum(e.seconds for e in inner), 0.0)
    runs = eqn.params["length"] if eqn.primitive.name == "scan" else 1
    return Estimate(
        runs * sum(e.seconds for e in inner), runs * sum(e.attributed for e in inner)
    )


def _total(jaxpr: Jaxpr, name: str, oracle: Oracle) -> Estimate:
    """Time of all equations of a jaxpr, one after the other."""
    parts = [
        _estimate(f"{name}/{eqn.primitive.name}", eqn, oracle)
        for eqn in jaxpr.eqns
        if eqn.primitive.name not in FREE
    ]
    return Estimate(sum(e.seconds for e in parts), sum(e.attributed for e in parts))


def _inner(eqn: JaxprEqn) -> list[Jaxpr]:
    """Functions among the equation's parameters, those of scalars left out."""
    found: list[Jaxpr] = []
    if eqn.primitive.name.startswith(SCALAR_FUNCTION):
        return found
    for value in eqn.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                found.append(item.jaxpr)
            elif isinstance(item, Jaxpr):
                found.append(item)
    return found


def _union(inputs: Sequence[Needs]) -> Needs:
    return tuple(dict.fromkeys(need for needs in inputs for need in needs))
