"""Asynchronous DiLoCo against a list of workers, its laws, and what it sends."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import (
    arrival_table,
    asynchronous_diloco,
    delayed_nesterov,
    emulate,
    wire_bytes,
)
from tests import helpers
from tests.helpers import mesh_of

RATE = 0.1
SHAPES = {"b": (3,), "w": (2, 5)}


def drawn(workers: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Targets of the workers: each walks down its own quadratic."""
    rng = np.random.default_rng(seed)
    return {k: rng.normal(size=(workers, *s)).astype("f4") for k, s in SHAPES.items()}


def walked(tx: Any, targets: Any, steps: int) -> tuple[Any, Any]:
    """The models of all workers after each step, and the last state."""

    def worker(target: Any) -> Any:
        x = jax.tree.map(jnp.zeros_like, target)

        def step(carry: Any, _: Any) -> Any:
            x, state = carry
            u, state = tx.update(jax.tree.map(jnp.subtract, x, target), state, x)
            x = optax.apply_updates(x, u)
            return (x, state), x

        (_, state), xs = jax.lax.scan(step, (x, tx.init(x)), None, steps)
        return xs, state

    return jax.jit(jax.vmap(worker, axis_name="data"))(targets)


def reference(target: np.ndarray, arrivals: Any, tokens: Any, steps: int) -> Any:
    """Models [workers] after each step, under delayed Nesterov of 0.7 and 0.9."""
    x, b = [np.zeros(target[0].shape) for _ in target], [0.0] * len(target)
    a, m, total, count, n = np.zeros(target[0].shape), 0.0, 0.0, 0, len(x)
    for t in range(steps):
        for i in range(len(x)):
            if tokens[t % len(tokens)][i]:
                x[i] = x[i] - RATE * (x[i] - target[i])
        for i in arrivals[t % len(arrivals)]:
            if i < 0:
                continue
            d = b[i] - x[i]
            a, total, count = a - 0.7 * d / n, total + d, count + 1
            if count == n:
                m = 0.9 * m + total / n
                a, total, count = a - 0.7 * 0.9 * m, 0.0, 0
            x[i] = b[i] = a
        yield np.stack(x)


@pytest.mark.few(2)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_equals_a_list_of_workers_over_24_steps(workers, dynamic):
    speeds = np.linspace(1, 0.4, workers).tolist()
    arrivals, tokens = arrival_table(speeds, 4, 12, dynamic=dynamic)
    outer: Any = delayed_nesterov(0.7, every=workers)
    tx: Any = asynchronous_diloco(
        optax.sgd(RATE), "data", arrivals, outer, tokens=tokens
    )
    target = drawn(workers)
    xs, _ = walked(tx, target, 24)
    for k in SHAPES:
        steps = reference(target[k], arrivals, tokens, 24)
        for t, expected in enumerate(steps):
            np.testing.assert_allclose(xs[k][:, t], expected, atol=1e-5)


def test_the_table_by_hand():
    """That of docs/local_updates.md."""
    outer: Any = delayed_nesterov(1.0, momentum=0.5, every=2)
    tx: Any = asynchronous_diloco(optax.sgd(1.0), "data", [[0, -1], [0, 1]], outer)

    def worker(gradient: jax.Array) -> list[Any]:
        x = jnp.float32(0)
        state, found = tx.init(x), []
        for _ in range(2):
            u, state = tx.update(gradient, state, x)
            x = x + u
            found += [x, state[1].kept.anchor, state[1].kept.outer.momentum]
        return found

    found = jax.vmap(worker, axis_name="data")(jnp.array([1.0, 3.0]))
    expected = [[-0.5, -3], [-0.5] * 2, [0, 0], [-1.5, -4.5], [-4.5] * 2, [1, 1]]
    np.testing.assert_allclose(np.stack(found), expected)


def test_of_one_worker_it_is_diloco():
    outer: Any = optax.sgd(0.7, momentum=0.9, nesterov=True)
    table = [[-1], [-1], [0]]
    one: Any = asynchronous_diloco(optax.adam(RATE), "data", table, outer)
    same: Any = relaxjax.diloco(optax.adam(RATE), "data", 3, outer=outer)
    target = drawn(1)
    found, expected = (walked(tx, target, 12)[0] for tx in (one, same))
    for k in SHAPES:
        np.testing.assert_allclose(found[k], expected[k], atol=1e-6)


def test_rounds_of_all_workers_at_a_time_end_at_the_mean():
    """With SGD(1 / n): the last to arrive begins at the mean of all models."""
    tx: Any = asynchronous_diloco(
        optax.sgd(RATE), "data", [[0, 1, 2]], optax.sgd(1 / 3)
    )
    target = drawn(3)
    xs, state = walked(tx, target, 1)
    for k in SHAPES:
        np.testing.assert_allclose(xs[k][2, 0], RATE * target[k].mean(0), atol=1e-6)
        anchor = np.asarray(state[1].kept.anchor[k])
        assert (anchor == anchor[:1]).all()


def test_a_worker_that_does_not_arrive_goes_its_own_way():
    tx: Any = asynchronous_diloco(optax.sgd(RATE), "data", [[0], [1]], optax.sgd(1.0))
    alone = optax.sgd(RATE)
    target = drawn(3)
    found, expected = (walked(t, target, 6)[0] for t in (tx, alone))
    for k in SHAPES:
        np.testing.assert_allclose(found[k][2], expected[k][2], atol=1e-6)
        assert np.abs(found[k][0] - expected[k][0]).max() > 0.01


@pytest.mark.parametrize("every", [1, 3])
def test_delayed_nesterov_moves_as_far_as_nesterov_along_the_mean(every):
    tx: Any = delayed_nesterov(0.7, momentum=0.9, every=every)
    same: Any = optax.sgd(0.7, momentum=0.9, nesterov=True)
    x = jnp.zeros(5)
    state, other = tx.init(x), same.init(x)
    rng = np.random.default_rng(0)
    for _ in range(4):
        ds = jnp.asarray(rng.normal(size=(every, 5)), jnp.float32)
        moved = jnp.zeros(5)
        for d in ds:
            step, state = tx.update(d, state)
            moved += step
        expected, other = same.update(ds.mean(0), other)
        np.testing.assert_allclose(moved, expected, atol=1e-6)


@pytest.mark.long
def test_bytes_of_each_step_traced_and_compiled():
    """An all-reduce for each arrival: none in the first step, one, and two."""
    table = [[-1, -1], [1, -1], [0, 1]]
    outer: Any = delayed_nesterov(0.7, every=2)
    tx: Any = asynchronous_diloco(optax.sgd(RATE), "data", table, outer)
    params = {k: jnp.zeros(s) for k, s in SHAPES.items()}
    one = 4 * (4 + 10)  # 2 (n - 1) ceil(size / n) floats of each leaf
    weight = wire_bytes(tx, params, emulate(2), start=1) - one  # that of n examples
    assert 0 < weight <= 8
    sent = [wire_bytes(tx, params, emulate(2), start=t) for t in range(3)]
    assert sent == [0, one + weight, 2 * (one + weight)]
    state = relaxjax.init(tx, params, mesh_of(2))
    step = relaxjax.data_parallel(helpers.step_of(lambda p, b: p, tx), mesh_of(2))
    assert relaxjax.compiled_wire_bytes(step, *state, np.zeros(2)) == sent[2]


def test_a_nan_is_its_workers_own_until_it_arrives():
    tx: Any = asynchronous_diloco(
        optax.sgd(RATE), "data", [[0], [0], [1]], optax.sgd(0.5)
    )
    target = drawn(2)
    bad = {k: np.where(np.arange(2) == 1, np.nan, x.T).T for k, x in target.items()}
    xs, _ = walked(tx, bad, 3)
    for k in SHAPES:
        assert np.isfinite(xs[k][0]).all()
        assert np.isnan(xs[k][1]).all()


def test_slow_workers_take_fewer_steps_for_each_arrival():
    arrivals, tokens = arrival_table([1.0, 0.5, 0.25], 8, 32)
    assert tokens.sum(0).tolist() == [32, 16, 8]
    came = [(arrivals == i).any(1).sum() for i in range(3)]
    assert came == [4, 4, 4]
    arrivals, _ = arrival_table([1.0, 0.5, 0.25], 8, 32, dynamic=False)
    assert [(arrivals == i).any(1).sum() for i in range(3)] == [4, 2, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tables([[0.5]]), "must be whole numbers"),
        (lambda: tables([0, 1]), "must be whole numbers"),
        (lambda: tables([[-1], [-1]]), "with somebody in some row"),
        (lambda: tables([[-2], [0]]), "or -1 for nobody"),
        (lambda: tables([[1, 1]]), "has a worker twice"),
        (lambda: walked(tables([[5]]), drawn(2), 1), "the axis has 2 workers, 0 to 1"),
        (lambda: delayed_nesterov(0.7, every=0), "every=0 must be a whole number"),
        (lambda: delayed_nesterov(0.7, momentum=1.0, every=2), "momentum=1.0 must be"),
        (lambda: arrival_table([1.0, 0.0], 2, 8), "must be finite numbers above 0"),
        (lambda: arrival_table([1.0], 9, 8), "take more rows"),
        (lambda: weighed(), "weight= has no meaning here"),
    ],
)
def test_refuses_tables_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def tables(arrivals: Any) -> Any:
    return asynchronous_diloco(optax.sgd(RATE), "data", arrivals, optax.sgd(1.0))


def weighed() -> Any:
    tx: Any = tables([[0]])
    step = functools.partial(tx.update, weight=1.0)
    x = jnp.zeros((2, 3))
    return jax.vmap(lambda x: step(x, tx.init(x), x), axis_name="data")(x)
