"""DiLoCo and SlowMo against lists of workers; their degenerate cases and refusals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate
from tests import helpers
from tests.helpers import mesh_of, pulled, targets_of
from tests.local_updates.codes import CODES

RATE, INNER, STEPS = 0.1, 0.9, 30
ETA, MU = 0.7, 0.9


def diloco_reference(targets, every: int, compress) -> list[np.ndarray]:
    """Models of all workers after each step; the inner optimizer is momentum SGD."""
    n, d = targets.shape
    xs, velocity = [np.zeros(d) for _ in range(n)], [np.zeros(d) for _ in range(n)]
    lost = [np.zeros(d) for _ in range(n)]
    anchor, outer, seen = np.zeros(d), np.zeros(d), []
    for step in range(1, STEPS + 1):
        for i in range(n):
            velocity[i] = INNER * velocity[i] + (xs[i] - targets[i])
            xs[i] = xs[i] - RATE * velocity[i]
        if step % every == 0:
            sent = []
            for i in range(n):
                p = lost[i] + anchor - xs[i]
                sent.append(compress(p))
                lost[i] = p - sent[i]
            mean = sum(sent) / n
            outer = MU * outer + mean
            anchor = anchor - ETA * (mean + MU * outer)
            xs = [anchor.copy() for _ in range(n)]
        seen.append(np.stack(xs))
    return seen


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_diloco_equals_a_list_of_workers(n, code):
    compressor, algorithm, plain = code
    tx = relaxjax.diloco(
        optax.sgd(RATE, INNER), "data", 4, compressor=compressor, algorithm=algorithm
    )
    expected = diloco_reference(targets_of(n), 4, plain)
    for mesh in (emulate(n), mesh_of(n)):
        found = pulled(tx, targets_of(n), mesh, STEPS)
        for (x, _), ref in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, ref, atol=2e-5)


def test_diloco_with_outer_sgd_of_one_is_local_sgd():
    inner = optax.adam(0.01)
    tx = relaxjax.diloco(inner, "data", 3, outer=optax.sgd(1.0))
    same = optax.chain(inner, relaxjax.local_sgd("data", 3))
    for (x, _), (y, _) in zip(
        pulled(tx, targets_of(4), emulate(4), 12),
        pulled(same, targets_of(4), emulate(4), 12),
        strict=True,
    ):
        np.testing.assert_array_equal(x, y)


def test_golden_vector_of_the_outer_optimizer():
    """Nesterov with 0.7 and 0.9 along outer gradients of 1, from 0."""
    tx = relaxjax.diloco(optax.sgd(1.0), "data", 1)
    seen = walk(tx, jnp.zeros(2), 5)
    expected = [-1.33, -3.227, -5.6343, -8.50087, -11.780783]
    np.testing.assert_allclose(seen[:, 0], expected, rtol=1e-6)


def walk(tx: Any, x: jax.Array, steps: int) -> np.ndarray:
    """Params after each step of gradients of 1, [steps, workers]."""

    def run(x):
        def step(carry, _):
            x, state = carry
            moved, state = tx.update(jnp.ones(()), state, x)
            return (x + moved, state), x + moved

        return jax.lax.scan(step, (x, tx.init(x)), length=steps)[1]

    return np.asarray(jax.jit(jax.vmap(run, axis_name="data", out_axes=1))(x))


def test_the_outer_optimizer_sees_the_common_model():
    """With decay 0.1 and rate 0.5 along 1, from 2: 2 - 0.5 (1 + 0.2), and so on."""
    outer = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.5))
    tx = relaxjax.diloco(optax.sgd(1.0), "data", 1, outer=outer)
    seen = walk(tx, jnp.full(2, 2.0), 2)
    np.testing.assert_allclose(seen[:, 0], [1.4, 0.83], rtol=1e-6)


def test_golden_vector_of_slow_momentum():
    """beta 0.5, H 3, g 0.1, alpha 1, from 1."""
    slow = relaxjax.slow_momentum("data", 3, momentum=0.5)
    seen = walk(optax.chain(optax.sgd(0.1), slow), jnp.ones(2), 12)
    np.testing.assert_allclose(seen[2::3, 0], [0.7, 0.25, -0.275, -0.8375], rtol=1e-5)


def slow_reference(targets, every: int, rates, alpha: float, beta: float):
    n, d = targets.shape
    xs, anchor, u, seen = np.zeros((n, d)), np.zeros(d), np.zeros(d), []
    for step, rate in enumerate(rates, start=1):
        xs = xs - rate * (xs - targets)
        if step % every == 0:
            u = beta * u + (anchor - xs.mean(axis=0)) / rate
            anchor = anchor - alpha * rate * u
            xs = np.repeat(anchor[None], n, axis=0)
        seen.append(xs)
    return seen


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_slow_momentum_equals_a_list_of_workers(n):
    """Under a schedule, which the units of the momentum follow."""
    rates = np.linspace(0.2, 0.02, STEPS)
    table = jnp.asarray(rates, jnp.float32)
    slow = relaxjax.slow_momentum(
        "data",
        4,
        momentum=0.6,
        slow_learning_rate=0.8,
        learning_rate=lambda t: table[t],
    )
    tx = optax.chain(optax.sgd(lambda t: table[t]), slow)
    expected = slow_reference(targets_of(n), 4, rates, 0.8, 0.6)
    for mesh in (emulate(n), mesh_of(n)):
        found = pulled(tx, targets_of(n), mesh, STEPS)
        for (x, _), ref in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, ref, atol=1e-5)


def test_slow_momentum_at_a_constant_rate_needs_no_schedule():
    found = []
    for rate in (None, RATE):
        slow = relaxjax.slow_momentum("data", 3, learning_rate=rate)
        tx = optax.chain(optax.sgd(RATE), slow)
        found.append(pulled(tx, targets_of(4), emulate(4), 9))
    for (x, _), (y, _) in zip(*found, strict=True):
        np.testing.assert_array_equal(x, y)


def test_slow_momentum_without_it_is_local_sgd():
    slow = relaxjax.slow_momentum("data", 3, momentum=0.0)
    tx = optax.chain(optax.sgd(RATE), slow)
    same = optax.chain(optax.sgd(RATE), relaxjax.local_sgd("data", 3))
    for (x, _), (y, _) in zip(
        pulled(tx, targets_of(4), emulate(4), 9),
        pulled(same, targets_of(4), emulate(4), 9),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-7)


@pytest.mark.few(2)
@pytest.mark.parametrize("where", [mesh_of, emulate])
def test_bytes_of_a_period(where):
    params = {"w": jnp.zeros((64, 64)), "b": jnp.zeros(64)}
    ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, where(8))
    inner = optax.adamw(1e-3)
    tx = relaxjax.diloco(inner, "data", 100)
    each = [relaxjax.wire_bytes(tx, params, where(8), start=t) for t in (0, 50, 98, 99)]
    assert each == [0, 0, 0, ring]
    whole = relaxjax.wire_bytes(tx, params, where(8), steps=100)
    assert whole / 100 == ring / 100


@pytest.mark.long
def test_muon_inside():
    data = helpers.batches(1, rows=8) * 24
    tx = relaxjax.diloco(optax.contrib.muon(0.02), "data", 4)
    params, _, losses = helpers.train(tx, emulate(4), data)
    assert relaxjax.spread(params) < 1e-6
    assert losses[-1] < losses[0]


def test_params_and_state_may_be_donated_together():
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    for tx in (
        relaxjax.diloco(optax.adam(0.1), "data", 2),
        relaxjax.slow_momentum("data", 2),
    ):
        helpers.assert_no_shared_buffer((params, tx.init(params)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: relaxjax.diloco(optax.sgd(1.0), "data", 0),
            ValueError,
            "diloco: sync_every=0 must be a whole number",
        ),
        (
            lambda: relaxjax.slow_momentum("data", 2, momentum=1.0),
            ValueError,
            r"slow_momentum: momentum=1.0 must be in \[0, 1\)",
        ),
        (
            lambda: relaxjax.diloco(optax.sgd(1.0), "data", 2, algorithm="rung"),
            ValueError,
            "algorithm='rung'",
        ),
        (
            lambda: relaxjax.diloco(
                optax.sgd(1.0),
                "data",
                2,
                outer=optax.contrib.reduce_on_plateau(),
            ).init(jnp.zeros(3)),
            TypeError,
            r"diloco: outer= could not be called .*'value'.*Take an optimizer",
        ),
    ],
)
def test_refuses(make, error, message):
    with pytest.raises(error, match=message):
        make()
