"""The way of each gradient through a traced update, and what it passes on it.

A program is walked from the gradients to the updates, and each value carries along

    local    the leaves whose own, unreduced gradients it depends on, by axis
    apart    the same, where the optimizer in a relaxation of models is looked into too
    passed   the relaxations that it has passed (`relaxjax._core.traced._marks`)
    behind   relaxations of models that arithmetic has been done behind
    kept     the fields of the state that it was in, if gradients are kept there
    used     the fields that arithmetic was done with, as with momenta, and in whose
             optimizer: None is the chain's own

What is in a relaxation's scope is trusted. Outside, whatever brings values of an axis
together ends what is local there, and numbers that only decide (`select`, `cond`, a
product with 0 or 1) are not followed. Sums of an accumulator are no memory.

Cost: one pass over the equations for each round until the state's flows no longer
change (two, as a rule).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from relaxjax._core._jaxprs import (
    axis_names_of,
    loop_parts,
    met_in,
    programs_of,
    walked,
)
from relaxjax._core.traced._marks import (
    REDUCERS,
    Station,
    doer_of,
    merge_of,
    station_of,
)

MOVES = re.compile(
    "bitcast_convert_type|broadcast_in_dim|concatenate|convert_element_type|copy|copy_p|"
    "dynamic_slice|dynamic_update_slice|gather|iota|optimization_barrier|pad|pcast|"
    "pvary|reduce_precision|reshape|rev|scatter|select_n|slice|split|squeeze|"
    "stop_gradient|transpose"
)
"""Nothing is computed: values are moved, chosen, or brought into another form."""
_DECIDES = frozenset(["cond", "select_n"])  # by their first operand
_SUMS = frozenset(["acc_grads", "accumulated", "grad_acc"])  # MultiSteps, ours, optax's


class Flow(NamedTuple):
    """What a value has come by; see the module."""

    local: frozenset[tuple[str, str]] = frozenset()
    passed: frozenset[Station] = frozenset()
    behind: frozenset[tuple[Station, str]] = frozenset()
    apart: frozenset[tuple[str, str]] = frozenset()
    kept: frozenset[str] = frozenset()
    used: frozenset[tuple[Station | None, str]] = frozenset()
    flag: bool = False  # 0 or 1, which a product only chooses by


class Flows(NamedTuple):
    """What is known of an update.

    Attributes:
      of: the flow of each of its leaves.
      stations: all relaxations in it.
      twice: pairs of reducers, of which the second gets what the first has reduced.
      idle: pairs of a reducer and a relaxation of models, which are equal already, as
        no gradients come to it but what the first has reduced over its axes.
      communicates: whether there is a collective over the axes.
      merges: relaxations that merge by a rule, and its name.
      led: relaxations behind an optimizer, and a field that it remembers gradients in.
    """

    of: dict[str, Flow]
    stations: frozenset[Station]
    twice: frozenset[tuple[Station, Station]]
    idle: frozenset[tuple[Station, Station]]
    communicates: bool
    merges: frozenset[tuple[Station, str]] = frozenset()
    led: frozenset[tuple[Station, str]] = frozenset()


def flows_of(
    jaxpr: Any, names: Sequence[str], fields: Sequence[str], axes: Sequence[str]
) -> Flows:
    """The flows of a program (gradients, state, ...) -> (updates, state).

    Args:
      jaxpr: the closed jaxpr, traced in `numbered`.
      names: names of the leaves of the gradients and of the updates, in order.
      fields: of each of the state's leaves, the field that holds it; "" for a
        number, which remembers no gradient.
      axes: the workers' axes.
    """
    own = [frozenset((name, axis) for axis in axes) for name in names]
    gradients = [Flow(local=pairs, apart=pairs) for pairs in own]
    rest = len(jaxpr.jaxpr.invars) - len(names) - len(fields)
    state = [Flow()] * len(fields)
    walk = _Walk(frozenset(axes))
    while True:
        out = walk(jaxpr.jaxpr, [*gradients, *state, *[Flow()] * rest], "")
        after = zip(state, out[len(out) - len(fields) :], fields, strict=True)
        later = [_remembered(*leaf) for leaf in after]
        if later == state:
            break
        state = later
    of = dict(zip(names, out, strict=False))
    return Flows(
        of,
        frozenset(walk.stations),
        frozenset(walk.twice),
        frozenset(walk.idle()),
        walk.communicates,
        frozenset(walk.merges),
        frozenset(walk.led),
    )


def _remembered(before: Flow, after: Flow, field: str) -> Flow:
    """The flow of a leaf of the state, for the next step."""
    apart = before.apart | after.apart
    kept = {field} if apart and field and field not in _SUMS else ()
    local, used = before.local | after.local, before.used | after.used
    return Flow(local, apart=apart, kept=frozenset(kept), used=used)


def _rules_in(eqn: Any, scope: str) -> Iterator[str]:
    """The rules by which something is merged in an equation's programs."""
    if rule := merge_of(scope):
        yield rule
    for part in programs_of(eqn.params):
        for inside in part.jaxpr.eqns:
            yield from _rules_in(inside, str(inside.source_info.name_stack))


class _Walk:
    """One pass over a program and the programs in it."""

    def __init__(self, axes: frozenset[str]):
        self.axes = axes
        self.stations: set[Station] = set()
        self.twice: set[tuple[Station, Station]] = set()
        self.came: dict[Station, frozenset[tuple[str, str]]] = {}
        self.merges: set[tuple[Station, str]] = set()
        self.led: set[tuple[Station, str]] = set()
        self.communicates = False

    def __call__(self, jaxpr: Any, ins: Sequence[Flow], scope: str) -> list[Flow]:
        return walked(jaxpr, ins, Flow(), self.equation, scope)

    def equation(self, eqn: Any, ins: list[Flow], scope: str) -> list[Flow]:
        """The flows of an equation's results."""
        name, count = eqn.primitive.name, len(eqn.outvars)
        if at := station_of(scope):
            self.merges |= {(at, rule) for rule in _rules_in(eqn, scope)}
            self.communicates |= bool(axes_met([eqn], self.axes))
            flow = self.relaxation(at, _join(ins))
            apart, used = self.apart(scope, ins), self.used(scope, ins)
            return [flow._replace(apart=apart, used=used)] * count
        if over := self.axes & met_in(scope):
            return [self.together(_join(ins), over)] * count
        if name == "while":
            return self.loop(eqn, ins, scope)
        if name in _DECIDES:
            ins = ins[1:]
        if parts := [part.jaxpr for part in programs_of(eqn.params)]:
            return self.nested(parts, ins, scope, count)
        flow = _join(ins)
        if over := _over(eqn, self.axes):
            return [self.together(flow, over)] * count
        if name == "convert_element_type" and eqn.invars[0].aval.dtype == bool:
            return [flow._replace(flag=True)]
        chosen = name == "mul" and any(x.flag for x in ins)
        if not (MOVES.fullmatch(name) or chosen):
            behind = {(m, name) for m in flow.passed if m.side == "models"}
            flow = flow._replace(behind=flow.behind | behind, used=_used(flow, None))
        return [flow] * count

    def together(self, flow: Flow, over: frozenset[str]) -> Flow:
        """The flow of what a collective makes."""
        self.communicates = True
        local, apart = _but(flow.local, over), _but(flow.apart, over)
        return flow._replace(local=local, apart=apart, flag=False)

    def relaxation(self, at: Station, flow: Flow) -> Flow:
        """The flow of what a relaxation makes."""
        self.stations.add(at)
        if at.side in REDUCERS:
            self.twice |= {
                (before, at)
                for before in flow.passed
                if before.side in REDUCERS
                and before.number != at.number
                and set(before.axes) & set(at.axes)
            }
        return Flow(_but(flow.local, at.axes), flow.passed | {at}, flow.behind)

    def apart(self, scope: str, ins: list[Flow]) -> frozenset[tuple[str, str]]:
        """What is `apart` in a relaxation, or in the optimizer that it calls."""
        apart = _join(ins).apart
        if (doer := doer_of(scope)) is None:
            return apart
        self.came[doer] = self.came.get(doer, frozenset()) | apart
        return _but(apart, doer.axes)

    def used(self, scope: str, ins: list[Flow]) -> frozenset[Any]:
        """What is `used` in a relaxation, or in the optimizer that it calls."""
        flow = _join(ins)
        if (doer := doer_of(scope)) is None:
            return _used(flow, station_of(scope))
        self.led |= {(doer, field) for whose, field in flow.used if whose != doer}
        return flow.used

    def idle(self) -> Iterator[tuple[Station, Station]]:
        """Reducers, and relaxations of models that are equal by them."""
        reducers = [at for at in self.came if at.side in REDUCERS]
        for at, apart in self.came.items():
            if at.side != "models" or any(axis in at.axes for _, axis in apart):
                continue
            yield from ((x, at) for x in reducers if set(at.axes) <= set(x.axes))

    def loop(self, eqn: Any, ins: list[Flow], scope: str) -> list[Flow]:
        """The flows of what a loop carries, after none of its turns and after any."""
        condition, body, first, more = loop_parts(eqn)
        read, carry = ins[first : first + more], ins[first + more :]
        self(condition.jaxpr, [*ins[:first], *carry], scope)
        while True:
            outs = self(body.jaxpr, [*read, *carry], scope)
            later = [_join(pair) for pair in zip(carry, outs, strict=True)]
            if later == carry:
                return carry
            carry = later

    def nested(self, parts: Any, ins: Any, scope: str, count: int) -> list[Flow]:
        """The flows of programs inside of an equation, joined over its branches."""
        results = []
        for part in parts:
            same = len(part.invars) == len(ins) and len(part.outvars) == count
            args = ins if same else [_join(ins)] * len(part.invars)
            outs = self(part, args, scope)
            results.append(outs if same else [_join(outs)] * count)
        return [_join(flows) for flows in zip(*results, strict=True)]


def _join(flows: Sequence[Flow]) -> Flow:
    *sets, flags = zip(Flow(), *flows, strict=True)
    return Flow(*(frozenset().union(*parts) for parts in sets), flag=all(flags[1:]))


def _used(flow: Flow, whose: Station | None) -> frozenset[Any]:
    """What is `used` after arithmetic in that optimizer."""
    return flow.used | {(whose, field) for field in flow.kept}


def _but(pairs: frozenset[tuple[str, str]], axes: Any) -> frozenset[tuple[str, str]]:
    return frozenset(x for x in pairs if x[1] not in axes)


def axes_met(eqns: Sequence[Any], axes: frozenset[str]) -> frozenset[str]:
    """The axes over which equations, or some inside of them, bring values together."""
    inside = [e for eqn in eqns for p in programs_of(eqn.params) for e in p.jaxpr.eqns]
    found = frozenset(axis for eqn in eqns for axis in _over(eqn, axes))
    return found | axes_met(inside, axes) if inside else found


def _over(eqn: Any, axes: frozenset[str]) -> frozenset[str]:
    """The axes over which an equation brings values together."""
    if not eqn.invars or MOVES.fullmatch(eqn.primitive.name):
        return frozenset()
    return axes.intersection(axis_names_of(eqn))
