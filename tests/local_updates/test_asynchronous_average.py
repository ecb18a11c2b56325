"""Models averaged while workers go on: against a list of workers, and laws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import asynchronous_average, compression, emulate
from tests import helpers
from tests.helpers import mesh_of, pulled, targets_of
from tests.local_updates.codes import CODES

RATE, INNER, STEPS = 0.1, 0.9, 30
SGD = optax.sgd(RATE)


def reference(targets, every: int, delay: int, compress) -> list[np.ndarray]:
    """Models of all workers after each step; the optimizer is momentum SGD."""
    n, d = targets.shape
    xs, velocity = [np.zeros(d) for _ in range(n)], [np.zeros(d) for _ in range(n)]
    lost = [np.zeros(d) for _ in range(n)]
    read: list[np.ndarray] = []
    anchor, seen = np.zeros(d), []
    for step in range(1, STEPS + 1):
        for i in range(n):
            velocity[i] = INNER * velocity[i] + (xs[i] - targets[i])
            xs[i] = xs[i] - RATE * velocity[i]
        if (step + delay) % every == 0:
            read = [x.copy() for x in xs]
        if step % every == 0:
            sent = []
            for i in range(n):
                p = lost[i] + anchor - read[i]
                sent.append(compress(p))
                lost[i] = p - sent[i]
            anchor = anchor - sum(sent) / n
            xs = [x + anchor - s for x, s in zip(xs, read, strict=True)]
        seen.append(np.stack(xs))
    return seen


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
@pytest.mark.parametrize("delay", [0, 1, 3])
def test_equals_a_list_of_workers(n, code, delay):
    compressor, algorithm, plain = code
    after = asynchronous_average(
        "data", 4, delay=delay, compressor=compressor, algorithm=algorithm
    )
    tx = optax.chain(optax.sgd(RATE, INNER), after)
    expected = reference(targets_of(n), 4, delay, plain)
    for mesh in (emulate(n), mesh_of(n)):
        found = pulled(tx, targets_of(n), mesh, STEPS)
        for (x, _), ref in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, ref, atol=2e-5)


@pytest.mark.parametrize("every", [1, 3])
def test_without_a_delay_it_is_local_sgd(every):
    inner = optax.adam(0.01)
    tx = optax.chain(inner, asynchronous_average("data", every, delay=0))
    same = optax.chain(inner, relaxjax.local_sgd("data", every))
    for (x, _), (y, _) in zip(
        pulled(tx, targets_of(4), emulate(4), 12),
        pulled(same, targets_of(4), emulate(4), 12),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-7)


def test_golden_vector():
    """Gradients -1 and -3 at rate 1, every 3 steps, as read a step before.

    After two steps there is 2 and 6, of mean 4; the third's 1 and 3 are kept.
    """
    tx: Any = optax.chain(optax.sgd(1.0), asynchronous_average("data", 3))

    def run(gradient):
        x, seen = jnp.zeros(()), []
        state = tx.init(x)
        for _ in range(6):
            updates, state = tx.update(gradient, state, x)
            x = x + updates
            seen.append(x)
        return jnp.stack(seen)

    found = jax.vmap(run, axis_name="data", out_axes=1)(jnp.array([-1.0, -3.0]))
    expected = [(1, 3), (2, 6), (5, 7), (6, 10), (7, 13), (11, 13)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("delay", [0, 2])
def test_the_mean_model_moves_by_the_mean_update(delay):
    targets, x = targets_of(8), np.zeros((8, 5))
    tx = optax.chain(SGD, asynchronous_average("data", 3, delay=delay))
    for params, state in pulled(tx, targets, emulate(8)):
        expected = x.mean(axis=0) - RATE * (x - targets).mean(axis=0)
        np.testing.assert_allclose(params.mean(axis=0), expected, atol=1e-6)
        anchor = state[1].kept.anchor
        np.testing.assert_array_equal(anchor, np.broadcast_to(anchor[0], anchor.shape))
        x = np.asarray(params, np.float64)


def test_the_anchor_is_the_mean_of_what_was_read():
    tx = optax.chain(SGD, asynchronous_average("data", 4, delay=3))
    found = pulled(tx, targets_of(5), emulate(5), 12)
    for arrived in (3, 7, 11):
        read, anchor = found[arrived - 3][0], found[arrived][1][1].kept.anchor
        np.testing.assert_allclose(anchor[0], read.mean(axis=0), atol=1e-6)
        assert np.ptp(found[arrived][0], axis=0).max() > 0.01  # they are not equal


@pytest.mark.parametrize("where", [mesh_of, emulate])
def test_bytes_of_a_period(where):
    params = {"w": jnp.zeros((64, 64)), "b": jnp.zeros(64)}
    ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, where(8))
    tx = optax.chain(SGD, asynchronous_average("data", 4, delay=2))
    each = [relaxjax.wire_bytes(tx, params, where(8), start=t) for t in range(8)]
    assert each == [0, 0, 0, ring] * 2


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_16_bits_are_averaged_in_float32(dtype):
    tx: Any = asynchronous_average("data", 1, delay=0)
    x = np.random.default_rng(1).normal(size=(3, 5)).astype(dtype)
    state = jax.vmap(tx.init, axis_name="data")(0 * x)
    moved, state = jax.jit(jax.vmap(tx.update, axis_name="data"))(0 * x, state, x)
    found = {moved.dtype, state.kept.anchor.dtype, state.read.dtype}
    assert found == {np.dtype(np.float32)}
    wide = x.astype(np.float32)
    mean = np.broadcast_to(wide.mean(axis=0), x.shape)
    np.testing.assert_allclose(wide + moved, mean, atol=1e-6)


@pytest.mark.long
def test_the_seed_draws_random_codes():
    def walk(seed: int) -> np.ndarray:
        code = compression.random_k(0.5)
        after = asynchronous_average("data", 2, compressor=code, seed=seed)
        tx = optax.chain(SGD, after)
        return pulled(tx, targets_of(4), emulate(4), 4)[-1][0]

    np.testing.assert_array_equal(walk(1), walk(1))
    assert np.abs(walk(1) - walk(2)).max() > 0.01


def test_state_is_as_large_as_stated():
    params = {"w": jnp.zeros((32, 32), jnp.bfloat16), "b": jnp.zeros(32)}
    tx = asynchronous_average("data", 4)
    floats = [x for x in jax.tree.leaves(tx.init(params)) if x.dtype == jnp.float32]
    assert sum(x.size for x in floats) == 2 * 33 * 32


def test_params_and_state_may_be_donated_together():
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    tx = asynchronous_average("data", 2)
    helpers.assert_no_shared_buffer((params, tx.init(params)))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sync_every": 0}, "sync_every=0 must be a whole number, 1 or more"),
        ({"sync_every": 2.5}, r"sync_every=2\.5 must be a whole number, 1 or more"),
        ({"delay": -1}, "delay=-1 must be a whole number, 0 or more"),
        (
            {"delay": 4},
            r"delay=4 must be below sync_every=4: what .*; take a longer sync_every, "
            "or a delay of 3 or less",
        ),
        ({"sync_every": 1}, "delay=1 must be below sync_every=1.* 0 or less"),
    ],
)
def test_refuses_at_construction(how, message):
    with pytest.raises(ValueError, match=f"asynchronous_average: {message}"):
        asynchronous_average("data", **{"sync_every": 4, **how})


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"algorithm": "rung"}, "algorithm='rung'"),
        ({"bucket_bytes": 0}, "bucket_bytes=0 must be"),
    ],
)
def test_refuses_what_all_reduce_refuses(how, message):
    with pytest.raises(ValueError, match=message):
        asynchronous_average("data", 4, **how)


def test_refuses_bad_calls():
    tx, x = asynchronous_average("data", 2), jnp.zeros(2)
    state: Any = tx.init(x)

    def call(*args: Any, **how: Any) -> Any:
        return jax.vmap(
            lambda _: tx.update(*args, **how), axis_name="data", axis_size=2
        )(jnp.zeros(2))

    name = "asynchronous_average"
    with pytest.raises(ValueError, match=f"{name}: weight= has no meaning here"):
        call(x, state, x, weight=1.0)
    with pytest.raises(ValueError, match=f"{name}: update needs params"):
        call(x, state)
    with pytest.raises(ValueError, match=f"{name}: the tree changed since init"):
        call({"x": x}, state, {"x": x})
    with pytest.raises(NameError, match=f"{name}: no axis named 'data' here"):
        tx.update(x, state, x)
