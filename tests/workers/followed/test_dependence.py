"""What decides, followed through small programs that a person can check by eye."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax

import relaxjax
from relaxjax import emulate
from relaxjax._core.traced._marks import marked
from relaxjax.workers._to_workers import workers_of
from relaxjax.workers.followed._dependence import NOBODYS, Dependence
from relaxjax.workers.followed._traced import traced
from tests import helpers
from tests.test_contract import ROWS

X = jax.ShapeDtypeStruct((2,), jnp.float32)
AXES = ("host", "data")
OWN = frozenset({("a", "host"), ("a", "data")})


def looked_at(fn: Callable[..., Any]) -> tuple[list[Any], set[str]]:
    """Of `fn(a, p)`, where only `a` differs between workers; `p` comes back."""
    sizes: Any = [(axis, 2) for axis in AXES]
    walk = Dependence(AXES)
    program = jax.make_jaxpr(fn, axis_env=sizes)(X, X)
    return walk.steps(program, [OWN, NOBODYS], range(1, 2)), walk.alone


def summed(x: Any) -> Any:
    return lax.psum(x, "data")


def same(x: Any) -> Any:
    return x


def mine(x: Any) -> Any:
    def update(updates, state, params=None):
        del params
        return summed(updates), state

    return marked("mine", "gradients", "data", lambda _: (), update).update(x, ())[0]


DECISIONS: dict[str, tuple[Any, Any, set[str]]] = {
    "by one's own": (lambda a, p: lax.cond(a[0] > 0, summed, same, p), OWN, {"psum"}),
    "by all of one's own": (
        lambda a, p: lax.cond(jnp.isfinite(a).all(), mine, same, p),
        OWN,
        {"mine"},
    ),
    "by what all agree on": (
        lambda a, p: lax.cond(lax.pmin(a, AXES)[0] > 0, summed, same, a),
        frozenset({("a", "host"), ("a", "data")}),
        set(),
    ),
    "by what this host agrees on": (
        lambda a, p: lax.cond(lax.pmin(a, "data")[0] > 0, summed, same, p),
        frozenset({("a", "host")}),
        set(),
    ),
    "without an exchange": (
        lambda a, p: lax.cond(a[0] > 0, jnp.sin, same, p),
        OWN,
        set(),
    ),
    "by a choice": (
        lambda a, p: lax.switch(jnp.where(a[0] > 0, 0, 1), [summed, same], p),
        OWN,
        {"psum"},
    ),
    "a branch in a branch": (
        lambda a, p: lax.cond(
            a[0] > 0, lambda x: lax.cond(p[0] > 0, summed, same, x), same, p
        ),
        OWN,
        {"psum"},
    ),
    "how often": (
        lambda a, p: lax.while_loop(lambda x: x[0] < a[0], summed, p),
        OWN,
        {"psum"},
    ),
    "how often, with numbers of its own": (
        lambda a, p: lax.while_loop(lambda x: x[0] < a[0], lambda x: summed(x) + p, p),
        OWN,
        {"psum"},
    ),
    "a number of times": (
        lambda a, p: lax.fori_loop(0, 3, lambda i, x: summed(x), p + a),
        frozenset({("a", "host")}),
        set(),
    ),
    "a loop that waits for nobody's": (
        lambda a, p: lax.while_loop(
            lambda x: x[0][0] > 0, lambda x: (x[0] - 1, mine(x[1])), (p, a)
        )[1],
        OWN,
        set(),
    ),
    "what a loop finds out": (
        lambda a, p: lax.while_loop(
            lambda x: x[0][0] > 0, lambda x: (x[1], mine(x[0])), (p, a)
        )[1],
        OWN,
        {"mine"},
    ),
    "in a scan": (
        lambda a, p: lax.scan(
            lambda c, x: (lax.cond(c[0] > 0, summed, same, c + x), x), p, a
        )[0],
        OWN,
        {"psum"},
    ),
}


@pytest.mark.parametrize(("fn", "own", "alone"), DECISIONS.values(), ids=DECISIONS)
def test_decisions(fn, own, alone):
    (out, _), found = looked_at(lambda a, p: (jax.jit(fn)(a, p), jnp.zeros(2)))
    assert out == own
    assert found == alone


def test_what_a_state_remembers_decides_in_the_next_step():
    def late(a, p):
        return lax.cond(p[0] > 0, summed, same, p), a

    assert looked_at(late)[1] == {"psum"}


def test_what_is_moved_along_others_is_told_apart():
    def ordered(a, p):
        p, b = lax.optimization_barrier((p, a))
        return lax.cond(p[0] > 0, summed, same, b), jnp.zeros(2)

    assert looked_at(ordered)[1] == set()


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda tx: tx,
    "skipping": lambda tx: relaxjax.skip_nonfinite(tx, "data"),
    "accumulated": lambda tx: relaxjax.skip_nonfinite(
        relaxjax.accumulate(tx, 2), "data"
    ),
    "MultiSteps": lambda tx: optax.MultiSteps(tx, 2).gradient_transformation(),
    "participating": lambda tx: relaxjax.participation(tx, "data", present=0.9),
}


@pytest.mark.few(12)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_nothing_here_decides_alone(wrap, row):
    workers = workers_of(emulate(4), None, "test")
    inner = optax.adam(1e-2)
    if not row.served:
        inner = optax.apply_if_finite(inner, 3)
    seen = traced(wrap(row.make(inner)), helpers.problem(), workers)
    # Absent workers are refused where all models count alike.
    assert seen.flows or "weight=" in str(seen.error)
    assert seen.alone == frozenset()
