"""Messages that wait for each other, which is what latency is paid for."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import relaxjax
from relaxjax import emulate, plan
from relaxjax.programs._period import period_of
from relaxjax.schedule import Link
from relaxjax.workers import workers_of

N = 8
RIGHT = [(i, (i + 1) % N) for i in range(N)]


def rounds(tx: optax.GradientTransformation, n: int = N) -> list[int]:
    workers = workers_of(emulate(n), None, "test")
    params = {"w": jax.ShapeDtypeStruct((64,), jnp.float32)}
    return [step.rounds for step in period_of(tx, params, workers).steps]


def of(update) -> int:
    """Rounds of an update of one array."""

    def whole(updates, state, params=None):
        return {"w": update(updates["w"])}, state

    (found,) = rounds(optax.GradientTransformation(lambda params: (), whole))
    return found


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("psum", 2 * 3),
        ("ring", 2 * (N - 1)),
        ("halving_doubling", 2 * 3),
        ("tree", 2 * 3),
        ("two_shot", 1 + N - 1),
        ("one_shot", N - 1),
    ],
)
def test_of_an_all_reduce_of_eight(algorithm, expected):
    assert rounds(relaxjax.all_reduce("data", algorithm=algorithm)) == [expected]


@pytest.mark.parametrize(("n", "expected"), [(1, 0), (2, 2), (5, 6), (8, 6), (9, 8)])
def test_of_a_sum_of_n(n, expected):
    assert rounds(relaxjax.all_reduce("data"), n) == [expected]


def test_what_waits_adds_up_and_what_is_alike_and_does_not_is_at_once():
    def sum_of(x):
        return lax.psum(x, "data")

    assert of(lambda x: sum_of(x) + sum_of(2 * x)) == 6
    assert of(lambda x: sum_of(sum_of(x))) == 12
    assert of(lambda x: sum_of(lax.ppermute(x, "data", RIGHT)) + sum_of(x)) == 13
    assert of(lambda x: lax.ppermute(x, "data", RIGHT) + sum_of(x)) == 7
    assert of(lambda x: jax.jit(sum_of)(jax.jit(sum_of)(x))) == 12
    assert of(lambda x: lax.ppermute(x, "data", [(i, i) for i in range(N)])) == 0
    groups = [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert of(lambda x: lax.psum(x, "data", axis_index_groups=groups)) == 2
    assert of(lambda x: lax.psum_scatter(x, "data", tiled=True).sum() + 0 * x) == 7


def test_of_loops_and_branches():
    def turn(x, _):
        return lax.ppermute(x, "data", RIGHT), None

    assert of(lambda x: lax.scan(turn, x, length=5)[0]) == 5
    branches = [lambda x: x, lambda x: lax.psum(x, "data") / N]
    assert of(lambda x: lax.switch(jnp.int32(x[0] > 0), branches, x)) == 6


def test_of_a_round_of_local_steps():
    tx = relaxjax.local_sgd("data", 4)
    assert rounds(tx) == [0, 0, 0, 6]


@pytest.mark.parametrize("per_host", [1, N])
def test_a_plan_gives_traced_rows_the_latencies_of_stated_ones(per_host):
    """One sum of all gradients, however a row is known."""
    model, link = (
        plan.Model(params=jnp.zeros((512, 512)), compute=0.01),
        Link(1e-2, 1e9),
    )
    network = plan.Network(
        workers=N, per_host=per_host, link=link, inside=link, overlap=False
    )
    stated = plan.predicted("all_reduce", model, network, {})
    traced = plan.predicted("bounded_staleness", model, network, {})
    assert stated is not None
    assert traced is not None
    np.testing.assert_allclose(traced.seconds, stated.seconds, rtol=1e-3)
