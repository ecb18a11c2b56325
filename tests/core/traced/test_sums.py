"""What values of a program are sums of."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from relaxjax._core._cond import when
from relaxjax._core._jaxprs import walked
from relaxjax._core.traced._sums import (
    NOTHING,
    SumWalk,
    Terms,
    choosers_of,
    mirrors_of,
    one_term,
    place_of,
    terms_of,
)

LEAF, PARAM, WAY, OTHER = ("leaf", 0), ("param", 0), ("way", 0), ("param", 1)
M, P, Q = jnp.ones(3), jnp.ones(3), jnp.ones(3)


def found(fn: Any) -> Terms:
    """Of a function of a leaf, its param, another param and a gradient."""
    program = jax.make_jaxpr(fn)(M, P, Q, M)
    ins = [one_term("leaf", 0), one_term("param", 0), one_term("param", 1), NOTHING]
    (out,) = walked(program.jaxpr, ins, NOTHING, SumWalk([0]))
    return out


def sums(*whole: tuple[Any, int], scaled: Any = ()) -> Terms:
    return Terms(frozenset(whole), frozenset(scaled))


CASES: dict[str, tuple[Any, Terms]] = {
    "itself": (lambda m, p, q, g: m, sums((LEAF, 1))),
    "in another dtype": (
        lambda m, p, q, g: m.astype(jnp.float16).astype(jnp.float32),
        sums((LEAF, 1)),
    ),
    "minus": (lambda m, p, q, g: -(m - q), sums((LEAF, -1), (OTHER, 1))),
    "a place": (lambda m, p, q, g: m - 0.1 * g - p, sums((LEAF, 1), (PARAM, -1))),
    "scaled": (lambda m, p, q, g: 2.0 * m + g, sums(scaled=[LEAF])),
    "by a gradient": (lambda m, p, q, g: g * m, sums(scaled=[LEAF])),
    "divided": (lambda m, p, q, g: m / g, sums(scaled=[LEAF])),
    "what divides": (lambda m, p, q, g: g / m, NOTHING),
    "a product of two": (lambda m, p, q, g: m * p, NOTHING),
    "a quotient of two": (lambda m, p, q, g: m / p, NOTHING),
    "a square": (lambda m, p, q, g: m**2, NOTHING),
    "a sum": (lambda m, p, q, g: jnp.sum(m) * g, NOTHING),
    "a way": (lambda m, p, q, g: 0.5 * (m - p), sums(scaled=[WAY])),
    "a way back": (lambda m, p, q, g: (p - m) / 2, sums(scaled=[WAY])),
    "beside a way": (
        lambda m, p, q, g: m + 0.5 * (p - m) - p,
        sums((LEAF, 1), (PARAM, -1), scaled=[WAY]),
    ),
    "no way": (lambda m, p, q, g: 0.5 * (m + p), sums(scaled=[LEAF, PARAM])),
    "no way to another": (lambda m, p, q, g: 0.5 * (m - q), sums(scaled=[LEAF, OTHER])),
    "no way between params": (
        lambda m, p, q, g: 0.5 * (p - q),
        sums(scaled=[PARAM, OTHER]),
    ),
    "one or the other": (
        lambda m, p, q, g: jnp.where(g > 0, m, 2.0 * p),
        sums((LEAF, 1), scaled=[PARAM]),
    ),
    "in a jit": (
        lambda m, p, q, g: jax.jit(lambda a, b: a - b)(m, p),
        sums((LEAF, 1), (PARAM, -1)),
    ),
    "in branches": (
        lambda m, p, q, g: lax.cond(g[0] > 0, lambda a, b: a, lambda a, b: -b, m, p),
        sums((LEAF, 1), (PARAM, -1)),
    ),
    "in a scan": (
        lambda m, p, q, g: lax.scan(lambda c, _: (c - p, None), m, None, length=2)[0],
        NOTHING,
    ),
    "in a loop": (
        lambda m, p, q, g: lax.while_loop(lambda c: c[0] > 0, lambda c: c - p, m),
        NOTHING,
    ),
}


@pytest.mark.parametrize(("fn", "right"), CASES.values(), ids=CASES)
def test_what_a_value_is_the_sum_of(fn, right):
    assert found(fn) == right


CHOICES: dict[str, tuple[Any, dict[float, Terms]]] = {
    "of a branch": (
        lambda m, p, n: lax.cond(n > 0, lambda: p + 0, lambda: -m),
        {0: sums((LEAF, -1)), 1: sums((PARAM, 1))},
    ),
    "of elements": (
        lambda m, p, n: lax.select_n(n > 0, -m, p),
        {0: sums((LEAF, -1)), 1: sums((PARAM, 1))},
    ),
    "times 0 or 1": (
        lambda m, p, n: (m - p) * n,
        {0: NOTHING, 1: sums((LEAF, 1), (PARAM, -1)), 2: sums(scaled=[WAY])},
    ),
    "times it, and it first": (
        lambda m, p, n: n * m,
        {0: NOTHING, 1: sums((LEAF, 1)), 2: sums(scaled=[LEAF])},
    ),
    "plus 0 or 1": (lambda m, p, n: n + m, {0: sums((LEAF, 1)), 1: sums((LEAF, 1))}),
}
"""Functions of a leaf, its param and a number, which decides what comes out."""


def choosing(program: Any, number: float) -> dict[str, float]:
    """This number at each equation that may choose, and at a sum, which may not."""
    chosen: dict[str, float] = {}

    def noted(eqn: Any, ins: list[Any], scope: str) -> list[Any]:
        if eqn.primitive.name in ("cond", "select_n", "mul", "add"):
            chosen[place_of(eqn, scope)] = number
        return [None] * len(eqn.outvars)

    walked(program, [None] * len(program.invars), None, noted)
    return chosen


@pytest.mark.parametrize(("fn", "rights"), CHOICES.values(), ids=CHOICES.keys())
def test_a_number_that_chooses(fn, rights):
    program = jax.make_jaxpr(fn)(M, P, 1.0).jaxpr
    ins = [one_term("leaf", 0), one_term("param", 0), NOTHING]
    for number, right in rights.items():
        walk = SumWalk([0], choosing(program, number))
        assert walked(program, ins, NOTHING, walk) == [right]


def test_what_chooses_is_an_operand_of_few_operations():
    def all_of_them(n, x):
        x = lax.cond(n > 0, lambda x: x, lambda x: -x, x)
        return lax.select_n(n > 0, x * n, x) + n

    eqns = jax.make_jaxpr(all_of_them)(1, M).jaxpr.eqns
    found = {eqn.primitive.name: [*choosers_of(eqn)] for eqn in eqns}
    assert len({place_of(eqn, "here") for eqn in eqns}) == len(eqns)
    asked = {name: places for name, places in found.items() if places}
    assert asked == {"cond": [0], "mul": [0, 1], "select_n": [0]}


def test_what_is_done_or_not_is_chosen_by_its_flag():
    def added(due, x, y):
        return when(due, lambda x: x + y, x)  # y is a constant of the loop

    program = jax.make_jaxpr(added)(True, M, P)
    (loop,) = [eqn for eqn in program.eqns if eqn.primitive.name == "while"]
    (place,) = choosers_of(loop)
    assert str(loop.invars[place].aval) == "bool[]"


def test_terms_of_a_sum():
    assert terms_of(sums((LEAF, 1), (PARAM, -1), scaled=[WAY])) == {LEAF, PARAM, WAY}


STARTS: dict[str, tuple[Any, list[int | None]]] = {
    "params": (lambda a, b: (b, a, a), [1, 0, 0]),
    "in another dtype": (lambda a, b: a.astype(jnp.float16), [0]),
    "copies": (lambda a, b: (jnp.copy(a), jnp.array(b)), [0, 1]),
    "zeros": (lambda a, b: (jnp.zeros(3), b), [None, 1]),
    "a sum": (lambda a, b: a + b, [None]),
    "in a jit": (jax.jit(lambda a, b: (b, a + b, a)), [1, None, 0]),
    "in branches": (
        lambda a, b: lax.cond(a[0] > 0, lambda x, y: x, lambda x, y: y, a, b),
        [None],
    ),
}


@pytest.mark.parametrize(("fn", "right"), STARTS.values(), ids=STARTS)
def test_leaves_that_are_params(fn, right):
    assert mirrors_of(jax.make_jaxpr(fn)(P, Q).jaxpr) == right
