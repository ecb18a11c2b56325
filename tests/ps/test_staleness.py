"""Pushes that come late: as tables say, within their bound, each exactly once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate
from tests import helpers
from tests.helpers import assert_close, assert_equal, mesh_of

DATA = helpers.batches(8, rows=24)
TABLE = np.array([[0, 2, 1, 0], [1, 0, 3, 2], [2, 1, 0, 0]])
ADAM = optax.adam(1e-2)


def trained(tx, mesh=None, data=DATA):
    params, _, _ = helpers.train(tx, mesh or emulate(4), data)
    return jax.tree.map(lambda x: x[0], params)


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("servers", [1, 2, 4])
@pytest.mark.parametrize("where", ["mesh", "emulated"])
def test_by_a_table(servers, where):
    mesh = mesh_of(4) if where == "mesh" else emulate(4)
    late = relaxjax.bounded_staleness("data", TABLE)
    expected = trained(optax.chain(late, relaxjax.all_reduce("data"), ADAM), mesh)
    how = {"staleness": TABLE, "servers": servers}
    found = trained(relaxjax.parameter_server(ADAM, "data", **how), mesh)
    assert_close(found, expected, 1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize("bound", [1, 3])
@pytest.mark.parametrize("seed", [0, 5])
def test_a_bound_draws_its_table(bound, seed):
    table = relaxjax.random_delays(4, bound, seed=seed)
    expected = trained(relaxjax.parameter_server(ADAM, "data", staleness=table))
    how = {"staleness": bound, "seed": seed}
    assert_equal(trained(relaxjax.parameter_server(ADAM, "data", **how)), expected)


def test_nothing_late_is_none():
    expected = trained(relaxjax.parameter_server(ADAM, "data"))
    table = np.zeros((2, 4), int)
    assert_equal(
        trained(relaxjax.parameter_server(ADAM, "data", staleness=0)), expected
    )
    found = trained(relaxjax.parameter_server(ADAM, "data", staleness=table))
    assert_equal(found, expected)


@pytest.mark.few(2)
@pytest.mark.parametrize("bound", [0, 1, 2, 5])
def test_no_push_is_older_than_the_bound_and_each_comes_once(bound):
    """Every gradient has a digit of its own in the sum that the server sees."""
    n, steps = 4, 12
    tx = relaxjax.parameter_server(optax.sgd(1.0), "data", staleness=bound, seed=3)
    start = {f"from step {t}": jnp.zeros(n) for t in range(steps)}

    def step(params, state, batch):
        t, me = batch[0, 0], jax.lax.axis_index("data")
        grads = {
            name: jnp.zeros(n).at[me].set(jnp.where(t == s, -n, 0.0))
            for s, name in enumerate(start)
        }
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, {}

    state = relaxjax.init(tx, start, emulate(n))
    run = relaxjax.data_parallel(step, emulate(n))
    arrived_at = np.full((steps, n), -1)
    for t in range(steps + bound):
        before = helpers.host(state[0])
        batch = np.full((n, 1), min(t, steps) if t < steps else -1)
        *state, _ = run(*state, batch)
        for s, name in enumerate(start):
            came = np.asarray(state[0][name][0]) - before[name][0]
            assert set(np.unique(came)) <= {0.0, 1.0}
            assert (arrived_at[s][came == 1] == -1).all()  # not a second time
            arrived_at[s][came == 1] = t
    age = arrived_at - np.arange(steps)[:, None]
    assert (arrived_at >= 0).all()
    assert age.min() >= 0
    assert age.max() <= bound
    if bound:
        assert len(np.unique(age)) == bound + 1  # all of them are drawn


@pytest.mark.long
def test_compensation_is_that_of_dc_asgd():
    late = relaxjax.dc_asgd("data", TABLE, strength=0.3)
    expected = trained(optax.chain(late, relaxjax.all_reduce("data"), ADAM))
    how = {"staleness": TABLE, "compensation": 0.3}
    assert_close(trained(relaxjax.parameter_server(ADAM, "data", **how)), expected)


def test_golden_compensation():
    """g = 2 taken at 0.5 arrives at 1: 2 + 0.04 * 4 * 0.5 = 2.08 (Zheng et al.)."""
    tx: Any = relaxjax.parameter_server(
        optax.sgd(-1.0), "data", staleness=[[1]], compensation=0.04
    )

    def late(g):
        _, state = tx.update(g, tx.init(g), jnp.float32(0.5))
        return tx.update(0 * g, state, jnp.float32(1.0))[0]

    found = jax.vmap(late, axis_name="data")(jnp.array([2.0]))
    np.testing.assert_allclose(found, [2.08], rtol=1e-6)


@pytest.mark.long
def test_a_weight_stays_with_its_gradient():
    """The second worker's come a step late, and count as when they were sent."""
    tx: Any = relaxjax.parameter_server(optax.sgd(-1.0), "data", staleness=[[0, 1]])

    def two(g, w):
        x, state = jnp.zeros(1), tx.init(jnp.zeros(1))
        first, state = tx.update(g, state, x, weight=w)
        second, _ = tx.update(10 * g, state, x, weight=1 - w)
        return first, second

    first, second = jax.vmap(two, axis_name="data")(
        jnp.array([[1.0], [2.0]]), jnp.array([0.25, 0.75])
    )
    np.testing.assert_allclose(first[0], 0.25 * 1.0)
    np.testing.assert_allclose(second[0], 0.75 * 10.0 + 0.75 * 2.0)


@pytest.mark.parametrize("compensation", [0.0, 1e-5])
def test_what_is_late_stays_in_float16_s_range(compensation):
    """n w g / sum w, and the square of g, are out of it; the mean and g are not."""
    tx: Any = relaxjax.parameter_server(
        optax.sgd(-1.0), "data", staleness=[[0, 1]], compensation=compensation
    )
    x, moved = jnp.zeros(1, jnp.float16), jnp.full(1, 0.5, jnp.float16)

    def two(g, w):
        _, state = tx.update(g, tx.init(x), x, weight=w)
        return tx.update(0 * g, state, moved, weight=w)[0]

    gs = jnp.array([[1.0], [4e4]], jnp.float16)
    out = jax.vmap(two, axis_name="data")(gs, jnp.array([0.0, 1.0]))
    sent = 2 * 4e4  # twice, as the other has no examples
    expected = (sent + compensation * sent**2 * 0.5) / 2
    np.testing.assert_allclose(np.asarray(out, np.float64)[:, 0], expected, rtol=1e-3)


def test_two_that_arrive_together_stay_in_float16_s_range():
    """The first worker's gradient of the step before, and its own."""
    table = [[1, 0], [0, 0]]
    tx: Any = relaxjax.parameter_server(optax.sgd(-1.0), "data", staleness=table)

    def two(g):
        x = jnp.zeros(1, jnp.float16)
        first, state = tx.update(g, tx.init(x), x)
        return first, tx.update(g, state, x)[0]

    gs = jnp.array([[4e4], [0.0]], jnp.float16)
    first, second = jax.vmap(two, axis_name="data")(gs)
    np.testing.assert_array_equal(first[:, 0], [0.0, 0.0])
    np.testing.assert_array_equal(second[:, 0], np.full(2, 4e4, np.float16))
