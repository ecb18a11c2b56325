"""Delays: what comes out is what went in, later; nothing is lost or counted twice."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import (
    all_reduce,
    bounded_staleness,
    dc_asgd,
    delay,
    emulate,
    random_delays,
)
from tests import helpers
from tests.helpers import mesh_of, pulled, targets_of

STEPS, RATE = 30, 0.1


def late_reference(targets, delays, weight=lambda d: 1.0, strength: float = 0.0):
    """One model; each gradient arrives after its delay, and meets the model then."""
    n, d = targets.shape
    x, seen = np.zeros(d), []
    under_way: list[tuple[int, int, np.ndarray, np.ndarray]] = []
    for t in range(STEPS):
        for i in range(n):
            late = int(delays[t % len(delays)][i])
            under_way.append((t + late, late, x - targets[i], x))
        arrived = [gradient for gradient in under_way if gradient[0] == t]
        step = sum(
            (weight(late) * (g + strength * g * g * (x - old)))
            for _, late, g, old in arrived
        )
        x = x - RATE * np.asarray(step + np.zeros(d)) / n
        seen.append(x)
    return seen


def late(delays: Any, method: Any = bounded_staleness, **how: Any) -> Any:
    return optax.chain(
        method("data", delays, **how), all_reduce("data"), optax.sgd(RATE)
    )


def assert_same_ways(found: list[Any], expected: list[Any]) -> None:
    for (x, _), ref in zip(found, expected, strict=True):
        for worker in x:
            np.testing.assert_allclose(worker, ref, atol=1e-5)


def damped(d: np.ndarray) -> np.ndarray:
    return 1 / np.maximum(d, 1)


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize(
    "how",
    [{}, {"weight_of": damped}, {"method": dc_asgd, "strength": 0.04}],
    ids=["plain", "damped", "compensated"],
)
def test_bounded_staleness_equals_gradients_that_arrive_late(n, how):
    delays = random_delays(n, 3, seed=n, period=7)
    assert set(np.unique(delays)) == {0, 1, 2, 3}
    expected = late_reference(
        targets_of(n),
        delays,
        how.get("weight_of", lambda d: 1.0),
        how.get("strength", 0.0),
    )
    for mesh in (emulate(n), mesh_of(n)):
        assert_same_ways(
            pulled(late(delays, **how), targets_of(n), mesh, STEPS), expected
        )


@pytest.mark.parametrize("steps", [1, 3])
def test_delay_is_a_table_of_one_number(steps):
    tx = optax.chain(delay(steps), all_reduce("data"), optax.sgd(RATE))
    expected = late_reference(targets_of(4), [[steps] * 4])
    for mesh in (emulate(4), mesh_of(4)):
        assert_same_ways(pulled(tx, targets_of(4), mesh, STEPS), expected)


@pytest.mark.parametrize("wait", [delay(0), bounded_staleness("data", [[0] * 4])])
def test_no_delay_is_none(wait):
    now = optax.chain(all_reduce("data"), optax.sgd(RATE))
    tx = optax.chain(wait, now)
    for (x, _), (y, _) in zip(
        pulled(tx, targets_of(4), emulate(4), 5),
        pulled(now, targets_of(4), emulate(4), 5),
        strict=True,
    ):
        np.testing.assert_array_equal(x, y)


def test_workers_of_two_axes_are_counted_host_by_host():
    delays = random_delays(4, 2, period=5)
    axes = ("host", "device")
    tx = optax.chain(bounded_staleness(axes, delays), all_reduce(axes), optax.sgd(RATE))
    mesh = emulate({"host": 2, "device": 2})
    expected = late_reference(targets_of(4), delays)
    assert_same_ways(pulled(tx, targets_of(4), mesh, STEPS), expected)


def test_nothing_is_lost_and_nothing_is_older_than_the_bound():
    """Gradients are powers of two of their step, so that each is seen by itself."""
    n, most, steps = 4, 3, 20
    delays = random_delays(n, most, seed=1, period=steps)
    tx: Any = bounded_staleness("data", delays)

    def run(one):
        def step(state, t):
            out, state = tx.update(one * 2.0**t, state)
            return state, out

        state, outs = jax.lax.scan(step, tx.init(one), jnp.arange(steps))
        return outs, sum(state.arriving)

    outs, waiting = jax.vmap(run, axis_name="data")(jnp.ones(n))
    came: set[tuple[int, int]] = set()
    for i, out in enumerate(np.asarray(outs, np.int64)):
        for t, bits in enumerate(out):
            for born in (b for b in range(steps) if bits >> b & 1):
                assert t - born == delays[born, i] <= most
                assert (i, born) not in came
                came.add((i, born))
    total = np.asarray(outs, np.float64).sum(axis=1) + np.asarray(waiting)
    np.testing.assert_array_equal(total, 2.0**steps - 1)


def test_golden_vector_of_compensation():
    """w 1, taken at 0.5, g 2, lambda 0.04, rate 0.1: 0.792."""
    tx: Any = optax.chain(dc_asgd("data", [[1]], strength=0.04), optax.sgd(0.1))

    def run(_):
        state = tx.init(jnp.float32(0.5))
        _, state = tx.update(jnp.float32(2), state, jnp.float32(0.5))
        moved, _ = tx.update(jnp.float32(0), state, jnp.float32(1))
        return 1 + moved

    found = jax.vmap(run, axis_name="data")(jnp.zeros(1))
    np.testing.assert_allclose(found, [0.792], rtol=1e-6)


def test_a_gradient_that_is_not_there_yet_may_be_infinite():
    tx: Any = bounded_staleness("data", [[2], [0]])

    def run(_):
        state = tx.init(jnp.float32(0))
        first, state = tx.update(jnp.float32(jnp.inf), state)
        second, state = tx.update(jnp.float32(1), state)
        third, _ = tx.update(jnp.float32(0), state)
        return jnp.stack([first, second, third])

    found = jax.vmap(run, axis_name="data")(jnp.zeros(1))[0]
    np.testing.assert_array_equal(found, [0, 1, jnp.inf])


@pytest.mark.parametrize(
    "tx",
    [
        delay(2),
        bounded_staleness("data", [[2, 1]]),
        dc_asgd("data", [[2, 1]], strength=0.1),
    ],
)
def test_nothing_is_sent_and_buffers_are_not_shared(tx):
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    helpers.assert_no_shared_buffer((params, tx.init(params)))
    sent = relaxjax.wire_bytes(tx, params, emulate(2))
    assert sent == 0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: delay(-1), ValueError, "delay: steps=-1 must be a whole number, 0"),
        (lambda: bounded_staleness("data", [1]), ValueError, r"shape \(1,\)"),
        (lambda: bounded_staleness("data", [[0.5]]), ValueError, "dtype float64"),
        (lambda: bounded_staleness("data", [[-1]]), ValueError, "hold -1, and must"),
        (
            lambda: dc_asgd("data", [[1]], strength=-1),
            ValueError,
            "strength=-1 must be 0",
        ),
        (lambda: random_delays(4, -1), ValueError, "random_delays: most=-1"),
        (lambda: random_delays(0, 1), ValueError, "random_delays: workers=0"),
    ],
)
def test_refuses_at_construction(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_refuses_in_update():
    x = jnp.zeros((3, 2))
    tx: Any = bounded_staleness("data", [[0, 1]])
    with pytest.raises(ValueError, match="have 2 columns and the axis has 3 workers"):
        jax.vmap(lambda x: tx.update(x, tx.init(x))[0], axis_name="data")(x)
    tx = dc_asgd("data", [[0, 1, 1]], strength=0.1)
    with pytest.raises(ValueError, match="dc_asgd: update needs params"):
        jax.vmap(lambda x: tx.update(x, tx.init(x))[0], axis_name="data")(x)
    for one in (delay(1), bounded_staleness("data", [[0, 1, 1]]), tx):
        with pytest.raises(ValueError, match="weight= has no meaning here"):
            one.update(x, one.init(x), weight=1.0)
        with pytest.raises(ValueError, match="the tree changed since init"):
            one.update({"x": x}, one.init(x))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "tx",
    [
        delay(2),
        bounded_staleness("data", [[0, 2], [1, 1]]),
        dc_asgd("data", [[0, 2], [1, 1]], strength=0.0),
    ],
    ids=["delay", "bounded_staleness", "dc_asgd"],
)
def test_narrow_gradients_of_wide_params_in_a_scan(tx):
    """What waits is kept in the dtypes of the params, and comes out in its own."""

    def train(x, gs):
        def step(state, g):
            out, state = tx.update(jnp.full(3, g), state, x)
            return state, out

        return jax.lax.scan(step, tx.init(x), gs)[1]

    def outs(dtype):
        gs = jnp.arange(1, 9).astype(dtype)  # exact in both dtypes, and so are sums
        mapped = jax.vmap(train, axis_name="data", in_axes=(0, None))
        return mapped(jnp.ones((2, 3)), gs)

    assert outs(jnp.bfloat16).dtype == jnp.bfloat16
    helpers.assert_equal(outs(jnp.bfloat16).astype(jnp.float32), outs(jnp.float32))
