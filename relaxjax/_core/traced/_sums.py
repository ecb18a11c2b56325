"""What the values of a program are sums of: params, leaves of a state, ways between.

A value that a walk knows is a sum of params and of leaves that equal them at the start,
each as it is or times anything. What is between a param and its leaf, and then scaled,
is their way, and neither of them. Of products, powers, reductions and loops nothing is
known.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from relaxjax._core._jaxprs import loop_parts, programs_of, walked

_SAME = {"copy", "convert_element_type", "pvary"}


Term = tuple[str, int]
"""A "param" or a "leaf" of the state by its number, or the "way" from one to the other,
by the number of the leaf."""


class Terms(NamedTuple):
    """What a value is the sum of, as far as it is known.

    Attributes:
      whole: terms that are in it as they are, and their signs.
      scaled: terms that are in it times anything.
    """

    whole: frozenset[tuple[Term, int]] = frozenset()
    scaled: frozenset[Term] = frozenset()


NOTHING = Terms()


def mirrors_of(program: Any) -> list[int | None]:
    """For each leaf of a new state the param that it is, if it is one."""
    return walked(program, list(range(len(program.invars))), None, _same)


def _same(eqn: Any, ins: list[int | None], scope: str) -> list[int | None]:
    if eqn.primitive.name in _SAME:
        return [ins[0]]
    if is_called(eqn):
        (part,) = programs_of(eqn.params)
        return walked(part.jaxpr, ins, None, _same, scope)
    return [None] * len(eqn.outvars)


def is_called(eqn: Any) -> bool:
    """Whether it only calls a program, such as a `jit`."""
    if eqn.primitive.name in ("scan", "while", "cond"):
        return False
    shape = len(eqn.invars), len(eqn.outvars)
    inside = [
        (len(p.jaxpr.invars), len(p.jaxpr.outvars)) for p in programs_of(eqn.params)
    ]
    return inside == [shape]


def place_of(eqn: Any, scope: str) -> str:
    """A name of an equation, and a scope for what it calls."""
    return f"{scope}/{id(eqn)}"


def choosers_of(eqn: Any) -> Sequence[int]:
    """Operands of which a number, if it is one, chooses what comes of the others."""
    if eqn.primitive.name == "while":
        *_, tests, turns = loop_parts(eqn)
        return [tests + turns]  # as the flag of `relaxjax._core._cond.when`
    return {"mul": [0, 1], "select_n": [0], "cond": [0]}.get(eqn.primitive.name, [])


class SumWalk:
    """The sums of an equation's results.

    `mirrors` is as `mirrors_of` gives it. `chosen` has numbers that choose in this
    step, by the places of their equations; without it both sides count.
    """

    def __init__(
        self,
        mirrors: Sequence[int | None],
        chosen: Mapping[str, float] | None = None,
    ):
        self._mirrors, self._chosen = mirrors, chosen or {}

    def __call__(self, eqn: Any, ins: list[Terms], scope: str) -> list[Terms]:
        name, count = eqn.primitive.name, len(eqn.outvars)
        if name in ("scan", "while"):
            return [NOTHING] * count
        place, parts = place_of(eqn, scope), [p.jaxpr for p in programs_of(eqn.params)]
        number = self._chosen.get(place)
        if number is not None and name == "cond":
            parts = [parts[int(number)]]
        if parts:
            return self._nested(parts, ins, place, count)
        if number is not None and name == "select_n":
            return [ins[1 + int(number)]]
        if number in (0, 1) and name == "mul":
            return [_both(ins) if number else NOTHING]
        if name in _SAME:
            return [ins[0]]
        if name == "neg":
            return [_minus(ins[0])]
        if name in ("add", "add_any"):
            return [_both(ins)]
        if name == "sub":
            return [_both([ins[0], _minus(ins[1])])]
        if name == "select_n":
            return [_both(ins[1:])]
        if (name == "mul" and NOTHING in ins) or (name == "div" and ins[1] == NOTHING):
            return [_both([self._scaled(x) for x in ins])]
        return [NOTHING] * count

    def _nested(
        self, parts: Sequence[Any], ins: list[Terms], scope: str, count: int
    ) -> list[Terms]:
        """The sums of the results of programs inside of an equation."""
        results = []
        for part in parts:
            spare = len(ins) - len(part.invars)  # a predicate or more, which come first
            if spare < 0:
                return [NOTHING] * count
            outs = walked(part, ins[spare:], NOTHING, self, scope)
            results.append(outs if len(outs) == count else [NOTHING] * count)
        return [_both(values) for values in zip(*results, strict=True)]

    def _scaled(self, terms: Terms) -> Terms:
        """A param and its mirror of opposite signs are the way between them."""
        ways = {
            i
            for (kind, i), sign in terms.whole
            if kind == "leaf" and (("param", self._mirrors[i]), -sign) in terms.whole
        }
        ends = {("leaf", i) for i in ways} | {("param", self._mirrors[i]) for i in ways}
        rest = terms_of(terms) - ends
        return Terms(scaled=frozenset(rest | {("way", i) for i in ways}))


def one_term(kind: str, number: int) -> Terms:
    return Terms(frozenset({((kind, number), 1)}))


def terms_of(terms: Terms) -> frozenset[Any]:
    return terms.scaled | {term for term, _ in terms.whole}


def _minus(terms: Terms) -> Terms:
    return terms._replace(whole=frozenset((t, -sign) for t, sign in terms.whole))


def _both(several: Sequence[Terms]) -> Terms:
    return Terms(
        frozenset().union(*(x.whole for x in several)),
        frozenset().union(*(x.scaled for x in several)),
    )
