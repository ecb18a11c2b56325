"""What an update passes on its way: the relaxations, and what stands behind them.

Each relaxation traces its update in a scope of a name, a side and its axes (`marked`),
which costs nothing at run time. The traced program of a whole chain is then walked from
the gradients to the updates (`flows_of`), and each value carries along

    local    the leaves whose own, unreduced gradients it depends on, by axis
    passed   the relaxations that it has passed
    behind   relaxations of models that arithmetic has been done behind

Sides: "gradients" (a reducer, before the optimizer), "tracking" (before it, beside
gossip), "models" (after the optimizer: updates that end at a mean, to which nothing may
be done), "optimizer" (all in one). What is in a scope is trusted; outside, a collective
over an axis ends what is local there, and numbers that only decide (`select`, `cond`)
are not followed.

Cost: a trace of `tx.update`, and one pass over its equations for each round until the
state's flows no longer change (two, as a rule).
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import optax
from jax.extend.core import Literal

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._checks import require_dtypes

_NUMBERS: ContextVar[Iterator[int] | None] = ContextVar("numbers", default=None)
_SCOPE = re.compile(r"relaxjax\.(\w+)/(\w+)/([\w,]+)/(\d+)")
# Nothing is computed: values are moved, chosen, or brought into another form.
_MOVES = re.compile(
    "bitcast_convert_type|broadcast_in_dim|concatenate|convert_element_type|copy|copy_p|"
    "dynamic_slice|dynamic_update_slice|gather|iota|optimization_barrier|pad|pcast|"
    "pvary|reduce_precision|reshape|rev|scatter|select_n|slice|split|squeeze|"
    "stop_gradient|transpose"
)
_DECIDES = frozenset(["cond", "select_n"])  # by their first operand
_COLLECTIVES = re.compile(
    "psum|psum_invariant|psum2|pmax|pmin|ppermute|all_gather|all_gather_invariant|"
    "all_to_all|reduce_scatter|psum_scatter"
)


class Station(NamedTuple):
    """A relaxation in a traced update; two of one name have different numbers."""

    name: str
    side: str
    axes: tuple[str, ...]
    number: int


class Flow(NamedTuple):
    """What a value has come by; see the module."""

    local: frozenset[tuple[str, str]] = frozenset()
    passed: frozenset[Station] = frozenset()
    behind: frozenset[tuple[Station, str]] = frozenset()
    flag: bool = False  # 0 or 1, which a product only chooses by


class Flows(NamedTuple):
    """What is known of an update.

    Attributes:
      of: the flow of each of its leaves.
      stations: all relaxations in it.
      twice: pairs of reducers, of which the second gets what the first has reduced.
      communicates: whether there is a collective over the axes.
    """

    of: dict[str, Flow]
    stations: frozenset[Station]
    twice: frozenset[tuple[Station, Station]]
    communicates: bool


def marked(
    name: str,
    side: str,
    axis_name: AxisName,
    init: Callable[..., Any],
    update: Callable[..., Any],
) -> optax.GradientTransformationExtraArgs:
    """The transformation, whose update is traced in a scope that `flows_of` finds."""
    axes = ",".join(axes_of(axis_name))

    def checked(params: optax.Params) -> Any:
        state = init(params)
        require_dtypes(params, name, None)
        return state

    def named(updates, state, params=None, **extra_args) -> Any:
        numbers = _NUMBERS.get()
        number = 0 if numbers is None else next(numbers)
        with jax.named_scope(f"relaxjax.{name}/{side}/{axes}/{number}"):
            return update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(checked, named)


@contextmanager
def numbered() -> Iterator[None]:
    """In it, every relaxation that is traced has a number of its own."""
    token = _NUMBERS.set(itertools.count())
    try:
        yield
    finally:
        _NUMBERS.reset(token)


def flows_of(
    jaxpr: Any, names: Sequence[str], states: int, axes: Sequence[str]
) -> Flows:
    """The flows of a program (gradients, state, ...) -> (updates, state).

    Args:
      jaxpr: the closed jaxpr, traced in `numbered`.
      names: names of the leaves of the gradients and of the updates, in order.
      states: number of the state's leaves.
      axes: the workers' axes.
    """
    gradients = [Flow(frozenset((name, axis) for axis in axes)) for name in names]
    rest = len(jaxpr.jaxpr.invars) - len(names) - states
    state = [Flow()] * states
    walk = _Walk(frozenset(axes))
    while True:
        out = walk(jaxpr.jaxpr, [*gradients, *state, *[Flow()] * rest], "")
        pairs = zip(state, out[len(out) - states :], strict=True)
        later = [Flow(before.local | now.local) for before, now in pairs]
        if later == state:
            break
        state = later
    of = dict(zip(names, out, strict=False))
    return Flows(of, frozenset(walk.stations), frozenset(walk.twice), walk.communicates)


class _Walk:
    """One pass over a program and the programs in it."""

    def __init__(self, axes: frozenset[str]):
        self.axes = axes
        self.stations: set[Station] = set()
        self.twice: set[tuple[Station, Station]] = set()
        self.communicates = False

    def __call__(self, jaxpr: Any, ins: Sequence[Flow], scope: str) -> list[Flow]:
        env: dict[Any, Flow] = dict(zip(jaxpr.invars, ins, strict=True))

        def read(var: Any) -> Flow:
            return Flow() if isinstance(var, Literal) else env.get(var, Flow())

        for eqn in jaxpr.eqns:
            inside = f"{scope}/{eqn.source_info.name_stack}"
            outs = self.equation(eqn, [read(v) for v in eqn.invars], inside)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def equation(self, eqn: Any, ins: list[Flow], scope: str) -> list[Flow]:
        """The flows of an equation's results."""
        name, count = eqn.primitive.name, len(eqn.outvars)
        if found := _SCOPE.search(scope):
            self.communicates |= _sends(eqn, self.axes)
            return [self.relaxation(_station(found), _join(ins))] * count
        if name in _DECIDES:
            ins = ins[1:]
        if parts := _inner(eqn):
            return self.nested(parts, ins, scope, count)
        flow = _join(ins)
        sends = _COLLECTIVES.fullmatch(name)
        over = self.axes & _axes(eqn) if sends else frozenset()
        if over:
            self.communicates = True
            local = frozenset(x for x in flow.local if x[1] not in over)
            return [flow._replace(local=local, flag=False)] * count
        if name == "convert_element_type" and eqn.invars[0].aval.dtype == bool:
            return [flow._replace(flag=True)]
        chosen = name == "mul" and any(x.flag for x in ins)
        if not (_MOVES.fullmatch(name) or chosen):
            behind = {(m, name) for m in flow.passed if m.side == "models"}
            flow = flow._replace(behind=flow.behind | behind)
        return [flow] * count

    def relaxation(self, at: Station, flow: Flow) -> Flow:
        """The flow of what a relaxation makes."""
        self.stations.add(at)
        if at.side == "gradients":
            self.twice |= {
                (before, at)
                for before in flow.passed
                if before.side == "gradients"
                and before.number != at.number
                and set(before.axes) & set(at.axes)
            }
        local = frozenset(x for x in flow.local if x[1] not in at.axes)
        return Flow(local, flow.passed | {at}, flow.behind)

    def nested(self, parts: Any, ins: Any, scope: str, count: int) -> list[Flow]:
        """The flows of programs inside of an equation, joined over its branches."""
        results = []
        for part in parts:
            same = len(part.invars) == len(ins) and len(part.outvars) == count
            args = ins if same else [_join(ins)] * len(part.invars)
            outs = self(part, args, scope)
            results.append(outs if same else [_join(outs)] * count)
        return [_join(flows) for flows in zip(*results, strict=True)]


def _station(found: re.Match[str]) -> Station:
    name, side, axes, number = found.groups()
    return Station(name, side, tuple(axes.split(",")), int(number))


def _join(flows: Sequence[Flow]) -> Flow:
    *sets, flags = zip(Flow(), *flows, strict=True)
    return Flow(*(frozenset().union(*parts) for parts in sets), flag=all(flags[1:]))


def _inner(eqn: Any) -> list[Any]:
    """The programs inside of an equation; not the scalar function of a reduction."""
    values = [
        x
        for v in eqn.params.values()
        for x in (v if isinstance(v, tuple | list) else [v])
    ]
    return [
        getattr(x, "jaxpr", x)
        for x in values
        if hasattr(getattr(x, "jaxpr", x), "eqns")
    ]


def _sends(eqn: Any, axes: frozenset[str]) -> bool:
    """Whether an equation, or one inside of it, is a collective over the axes."""
    if _COLLECTIVES.fullmatch(eqn.primitive.name) and axes & _axes(eqn):
        return True
    return any(_sends(e, axes) for part in _inner(eqn) for e in part.eqns)


def _axes(eqn: Any) -> frozenset[str]:
    names = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    names = names if isinstance(names, tuple | list) else (names,)
    return frozenset(x for x in names if isinstance(x, str))
