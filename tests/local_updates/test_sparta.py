"""SPARTA against lists of workers, the sets it draws, its laws, and what it sends."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate, sparta, wire_bytes
from relaxjax.local_updates.parts._sparta import SELECTIONS, chosen
from tests import helpers
from tests.helpers import pulled, targets_of

RATE, STEPS, SHARE = 0.1, 24, 0.25
selections = pytest.mark.parametrize("selection", SELECTIONS)


def sets(size: int, rounds: int, selection: str, number: int, leaf: int = 0) -> Any:
    at = chosen(size, rounds, selection, jnp.uint32(number), 0, leaf)
    return [int(i) for i in at if i < size]


def reference(
    targets: np.ndarray, selection: str, delay: int, weights: np.ndarray, every: int = 1
) -> list[np.ndarray]:
    """Models of a list of workers after each step; plain SGD."""
    n, d = targets.shape
    xs, read, seen = [np.zeros(d) for _ in range(n)], [], []
    for step in range(STEPS):
        xs = [x - RATE * (x - t) for x, t in zip(xs, targets, strict=True)]
        if (step + 1) % every == 0:
            at = sets(d, 4, selection, step // every)
            read.append((at, [x[at].copy() for x in xs]))
            if len(read) > delay:
                there, values = read[-1 - delay]
                w = weights[step]
                mean = sum(w[i] * values[i] for i in range(n)) / sum(w)
                for i in range(n):
                    if w[i]:
                        xs[i][there] += mean - values[i]
        seen.append(np.stack(xs))
    return seen


@functools.cache
def walk_of(tx: Any) -> Any:
    def one(x: Any, state: Any, target: Any, w: Any) -> Any:
        u, state = tx.update(x - target, state, x, weight=w)
        return optax.apply_updates(x, u), state

    return jax.jit(jax.vmap(one, axis_name="data"))


@pytest.mark.few(2)
@selections
@pytest.mark.parametrize("n", [2, 3, 9])
@pytest.mark.parametrize(("delay", "every"), [(0, 1), (2, 1), (1, 3)])
def test_equals_a_list_of_workers(n, selection, delay, every):
    """Ten elements, of which the last stratum has two; a worker is absent at times."""
    tx = optax.chain(
        optax.sgd(RATE),
        sparta("data", SHARE, delay=delay, every=every, selection=selection),
    )
    targets = targets_of(n)[:, :10] if targets_of(n).shape[1] > 10 else targets_of(n)
    weights = np.random.default_rng(0).uniform(1, 2, (STEPS, n)).astype(np.float32)
    weights[2::5, 0] = 0
    x = jnp.zeros(targets.shape, jnp.float32)
    state = jax.vmap(tx.init, axis_name="data")(x)
    expected = reference(targets, selection, delay, weights, every)
    for w, there in zip(weights, expected, strict=True):
        x, state = walk_of(tx)(x, state, jnp.asarray(targets, jnp.float32), w)
        np.testing.assert_allclose(x, there, atol=2e-5)


@pytest.mark.few(3)
@pytest.mark.parametrize("size", [1, 3, 4, 10, 37])
def test_a_partition_takes_every_element_once(size):
    for cycle in (0, 5):
        rounds = [sets(size, 4, "partition", 4 * cycle + k) for k in range(4)]
        assert sorted(i for at in rounds for i in at) == list(range(size))
    other = [sets(size, 4, "partition", 24 + k, leaf=1) for k in range(4)]
    assert size < 10 or other != rounds


def test_random_sets_take_every_element_equally_often():
    """400 draws of one in four: 100 each, with a deviation of 8.7."""
    draw = jax.jit(jax.vmap(lambda t: chosen(40, 4, "random", t, 0, 0)))
    drawn = np.asarray(draw(jnp.arange(400, dtype=jnp.uint32)))
    assert drawn.shape == (400, 10)
    assert (drawn // 4 == np.arange(10)).all()
    counts = np.bincount(drawn.ravel(), minlength=40)
    assert np.abs(counts - 100).max() < 35


@selections
def test_the_mean_stays_and_the_distance_falls(selection):
    tx: Any = sparta("data", SHARE, selection=selection)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 400)), jnp.float32)
    state = jax.vmap(tx.init, axis_name="data")(x)
    step = jax.jit(jax.vmap(tx.update, axis_name="data"))
    before, left = np.asarray(x, np.float64), []
    for _ in range(4):
        u, state = step(jnp.zeros_like(x), state, x)
        x = x + u
        now = np.asarray(x, np.float64)
        np.testing.assert_allclose(now.mean(0), before.mean(0), atol=1e-6)
        left.append(((now - now.mean(0)) ** 2).sum())
    share = np.array(left) / ((before - before.mean(0)) ** 2).sum()
    if selection == "partition":
        np.testing.assert_allclose(share, [0.75, 0.5, 0.25, 0], atol=0.04)
    else:
        np.testing.assert_allclose(share, 0.75 ** np.arange(1, 5), atol=0.06)


def test_a_share_of_one_is_local_sgd_of_every_step():
    one = optax.chain(optax.sgd(RATE), sparta("data", 1.0))
    same = optax.chain(optax.sgd(RATE), relaxjax.local_sgd("data", 1))
    for (x, _), (y, _) in zip(
        pulled(one, targets_of(4), emulate(4), 6),
        pulled(same, targets_of(4), emulate(4), 6),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("delay", [0, 2])
def test_bytes_traced_stated_and_compiled_are_the_same(delay):
    params = {"w": jnp.zeros((5, 3)), "b": jnp.zeros(4), "s": jnp.zeros(())}
    tx = optax.chain(
        optax.sgd(RATE), sparta("data", SHARE, delay=delay, algorithm="ring")
    )
    stated = 2 * 4 * -(-(4 + 1 + 1) // 2)  # ceil(15 / 4), 1 and 1 values, two workers
    helpers.assert_sends(tx, params, stated)
    seldom = sparta("data", SHARE, every=3, algorithm="ring")
    sent = [wire_bytes(seldom, params, emulate(2), start=k) for k in range(6)]
    assert sent == [0, 0, stated] * 2


def test_diloco_around_it_ends_its_rounds_at_one_model():
    inner = optax.chain(optax.sgd(RATE), sparta("data", SHARE))
    tx = relaxjax.diloco(inner, "data", 4, outer=optax.sgd(1.0))
    plain = relaxjax.diloco(optax.sgd(RATE), "data", 4, outer=optax.sgd(1.0))
    runs = [pulled(t, targets_of(3), emulate(3), 8) for t in (tx, plain)]
    for step, ((x, _), (y, _)) in enumerate(zip(*runs, strict=True)):
        assert (np.ptp(x, axis=0).max() < 1e-6) == (step % 4 == 3)
        np.testing.assert_allclose(x.mean(0), y.mean(0), atol=1e-5)  # linear gradients
        if step % 4 == 2:
            assert np.var(x, axis=0).sum() < 0.8 * np.var(y, axis=0).sum()


@pytest.mark.long
def test_narrow_leaves_and_those_without_elements():
    tx: Any = sparta("data", 1.0)
    x = {"w": jnp.ones((2, 3), jnp.bfloat16), "e": jnp.zeros((2, 0))}

    def one(x: Any) -> Any:
        return tx.update(jax.tree.map(jnp.zeros_like, x), tx.init(x), x)[0]

    u = jax.vmap(one, axis_name="data")(x | {"w": x["w"] * jnp.array([[1.0], [3.0]])})
    assert u["w"].dtype == jnp.float32
    np.testing.assert_array_equal(u["w"], np.array([[1.0], [-1.0]]) * np.ones((2, 3)))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"share": 0.0}, r"sparta: share=0.0 must be in \(0, 1\]"),
        ({"every": 0}, "sparta: every=0 must be a whole number, 1 or more"),
        ({"delay": -1}, "sparta: delay=-1 must be a whole number, 0 or more"),
        ({"selection": "best"}, "selection='best' is not one of partition, random"),
    ],
)
def test_refuses_numbers_that_cannot_be(knobs, message):
    with pytest.raises(ValueError, match=message):
        sparta("data", **knobs)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("factor", [np.complex64(1j), np.float64(1e200)])
def test_wider_numbers_are_averaged_whole(factor):
    """Both parts of complex ones, and doubles beyond what float32 holds."""
    with jax.enable_x64(True):
        tx: Any = sparta("data", 1.0)
        x = np.array([[1, 3e-3], [3, 1e-3]], factor.dtype) * factor

        def one(x: Any) -> Any:
            return tx.update(jnp.zeros_like(x), tx.init(x), x)[0]

        moved = x + jax.vmap(one, axis_name="data")(jnp.asarray(x))
        np.testing.assert_allclose(moved, [x.mean(0)] * 2, rtol=1e-6)
        assert np.isfinite(moved).all()
