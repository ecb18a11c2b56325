"""What the values of a program are sums of: params, leaves of a state, ways between.

A value that a walk knows is a sum of params and of leaves that equal them at the start,
each as it is or times anything. What is between a param and its leaf, and then scaled,
is their way, and neither of them. Of products, powers, reductions and loops nothing is
known.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from relaxjax._core._jaxprs import programs_of, walked

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
    parts = list(programs_of(eqn.params))
    if eqn.primitive.name in _SAME:
        return [ins[0]]
    if len(parts) == 1 and len(parts[0].jaxpr.invars) == len(ins):
        outs = walked(parts[0].jaxpr, ins, None, _same, scope)
        return outs if len(outs) == len(eqn.outvars) else [None] * len(eqn.outvars)
    return [None] * len(eqn.outvars)


class SumWalk:
    """The sums of an equation's results; `mirrors` as `mirrors_of` gives them."""

    def __init__(self, mirrors: Sequence[int | None]):
        self._mirrors = mirrors

    def __call__(self, eqn: Any, ins: list[Terms], scope: str) -> list[Terms]:
        name, count = eqn.primitive.name, len(eqn.outvars)
        if name in ("scan", "while"):
            return [NOTHING] * count
        if parts := [part.jaxpr for part in programs_of(eqn.params)]:
            return self._nested(parts, ins, scope, count)
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
