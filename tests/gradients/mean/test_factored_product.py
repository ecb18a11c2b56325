"""factored_product: a dense layer's gradient from everybody's factors, exactly."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import factored_product, factored_product_wire_bytes
from tests.helpers import assert_close, mesh_of

FEW, MANY = (2, 12, 10), (40, 6, 5)  # rows, r, c: factors are less, and the product is


def arrays(n: int, rows: int, r: int, c: int, dtype: Any = np.float32) -> Any:
    rng = np.random.default_rng(n + rows)
    x, targets = rng.normal(size=(n, rows, r)), rng.normal(size=(n, rows, c))
    w = rng.normal(size=(r, c)) / r**0.5
    return [jnp.asarray(a, dtype) for a in (x, targets, w)]


def loss(w: Any, x: Any, targets: Any, weight: Any = None) -> Any:
    y = factored_product(jnp.tanh(x), w, "data", weight=weight)
    return jnp.mean((y - targets) ** 2)


def of_all(x: Any, targets: Any, w: Any, *weight: Any) -> Any:
    """Each worker's gradients, of w and of its own x."""
    mapped = (None, *[0] * (2 + len(weight)))
    gradient = jax.vmap(jax.grad(loss, (0, 1)), mapped, axis_name="data")
    return jax.jit(gradient)(w, x, targets, *weight)


def by_hand(x: Any, targets: Any, w: Any, weights: Any = None) -> np.ndarray:
    """The mean of gradients over a list of workers, in NumPy."""
    x, targets, w = (np.asarray(a, np.float64) for a in (x, targets, w))
    weights = np.ones(len(x)) if weights is None else np.asarray(weights)
    total = np.zeros_like(w)
    for here, there, count in zip(np.tanh(x), targets, weights, strict=True):
        if count:
            total += count * here.T @ (2 * (here @ w - there) / there.size)
    return total / max(weights.sum(), 1)


@settings(deadline=None, max_examples=10)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 7), st.integers(1, 7))
def test_equals_the_mean_over_a_list_of_workers(n, rows, r, c):
    x, targets, w = arrays(n, rows, r, c)
    found, _ = of_all(x, targets, w)
    expected = by_hand(x, targets, w)
    for worker in np.asarray(found):
        np.testing.assert_allclose(worker, expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(worker, found[0])


@pytest.mark.parametrize("shape", [FEW, MANY], ids=["factors", "product"])
def test_a_worker_without_examples_may_hold_anything(shape):
    x, targets, w = arrays(4, *shape)
    counts = np.array([2.0, 0.0, 5.0, 1.0], np.float32)
    expected = by_hand(x, targets, w, counts)
    found, _ = of_all(x.at[1].set(jnp.nan), targets, w, jnp.asarray(counts))
    for worker in np.asarray(found):
        np.testing.assert_allclose(worker, expected, rtol=1e-4, atol=1e-6)
    nobody, _ = of_all(x, targets, w, jnp.zeros(4))
    np.testing.assert_array_equal(nobody, 0 * nobody)


def test_the_gradient_of_activations_is_the_workers_own():
    x, targets, w = arrays(3, *FEW)
    _, found = of_all(x, targets, w)

    def plain(x, targets):
        return jnp.mean((jnp.tanh(x) @ w - targets) ** 2)

    assert_close(found, jax.jit(jax.vmap(jax.grad(plain)))(x, targets), 1e-6)


@pytest.mark.parametrize("shape", [FEW, MANY], ids=["factors", "product"])
def test_narrow_arrays_come_out_narrow(shape):
    x, targets, w = arrays(3, *shape, dtype=jnp.bfloat16)
    found, of_x = of_all(x, targets, w)
    assert found.dtype == of_x.dtype == jnp.bfloat16
    expected = by_hand(x, targets, w)
    off = np.abs(np.asarray(found[0], np.float64) - expected).max()
    assert off < 0.03 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(FEW, np.float32), (FEW, jnp.bfloat16), (MANY, np.float32)],
    ids=["factors", "narrow factors", "product"],
)
def test_bytes_stated_and_compiled_are_the_same(shape, dtype):
    x, targets, w = arrays(4, *shape, dtype=dtype)
    mesh, tx = mesh_of(4), optax.sgd(0.1)
    params, state = relaxjax.init(tx, w, mesh, reduced_in_step=True)

    def train_step(w, state, batch):
        updates, state = tx.update(jax.grad(loss)(w, *batch), state, w)
        return optax.apply_updates(w, updates), state, {}

    step = relaxjax.data_parallel(train_step, mesh)
    batch = jax.tree.map(lambda a: a.reshape(-1, a.shape[-1]), (x, targets))
    stated = factored_product_wire_bytes(x[0], w, 4)
    assert relaxjax.compiled_wire_bytes(step, params, state, batch) == stated
    rows, r, c = shape
    item = w.dtype.itemsize
    factors = 3 * rows * (r + c) * item
    assert stated == min(factors, 2 * 3 * -(-r * c // 4) * item)
    assert (stated == factors) == (shape == FEW)
    params, state, _ = step(params, state, batch)
    assert relaxjax.spread(params) == 0.0


def test_in_a_checked_shard_map_on_two_axes():
    x, targets, w = arrays(4, *FEW)
    axes = ("host", "device")
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:4]).reshape(2, 2), axes)

    def gradient(w, x, targets):
        def loss(w):
            y = factored_product(jnp.tanh(x[0]), w, axes)
            return jnp.mean((y - targets[0]) ** 2)

        return jax.grad(loss)(relaxjax.to_local(w, axes))[None]

    specs = (P(), P(axes), P(axes))
    mapped = jax.shard_map(gradient, mesh=mesh, in_specs=specs, out_specs=P(axes))
    found = jax.jit(mapped)(w, x, targets)
    for worker in np.asarray(found):
        np.testing.assert_allclose(worker, by_hand(x, targets, w), rtol=1e-4, atol=1e-6)


def test_in_a_scan_over_layers():
    x, targets, w = arrays(2, 3, 6, 6)
    layers = jnp.stack([w, w.T])

    def deep(layers, x, targets, product):
        def layer(h, w):
            return jnp.tanh(product(h, w)), None

        return jnp.mean((jax.lax.scan(layer, x, layers)[0] - targets) ** 2)

    def ours(layers, x, targets):
        return deep(layers, x, targets, lambda h, w: factored_product(h, w, "data"))

    mapped = jax.vmap(jax.grad(ours), (None, 0, 0), axis_name="data")
    found = mapped(layers, x, targets)

    def alone(layers, x, targets):
        return deep(layers, x, targets, jnp.matmul)

    plain = jax.vmap(jax.grad(alone), (None, 0, 0))
    assert_close(found[0], plain(layers, x, targets).mean(axis=0), 1e-5)


def test_leading_axes_and_vectors():
    x, targets, w = arrays(3, 8, 12, 10)
    whole, _ = of_all(x, targets, w)
    halves = of_all(x.reshape(3, 2, 4, -1), targets.reshape(3, 2, 4, -1), w)[0]
    np.testing.assert_allclose(halves, whole, rtol=1e-5, atol=1e-7)
    found, _ = of_all(x[:, 0], targets[:, 0], w)
    expected = by_hand(x[:, :1], targets[:, :1], w)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "w", "words"),
    [
        (
            np.ones((2, 3)),
            np.ones((4, 5)),
            r"x is float32\[2,3\] and w is float32\[4,5\]",
        ),
        (np.ones((2, 3)), np.ones((3, 2, 2)), "reshape w of more axes"),
        (np.ones((2, 3), int), np.ones((3, 2)), "must be floating"),
    ],
)
def test_what_is_no_dense_layer_is_refused(x, w, words):
    with pytest.raises(ValueError, match=words):
        factored_product(jnp.asarray(x), jnp.asarray(w), "data")


def test_outside_the_axis_the_backward_pass_says_so():
    with pytest.raises(NameError, match="data"):
        jax.grad(lambda w: factored_product(jnp.ones((2, 3)), w, "data").sum())(
            jnp.ones((3, 3))
        )


def test_a_batch_without_rows_has_a_gradient_of_zeros():
    x, w = jnp.zeros((4, 0, 3)), jnp.ones((3, 5))
    gradient = jax.grad(lambda w, x: factored_product(x, w, "data").sum())
    out = jax.vmap(gradient, (None, 0), axis_name="data")(w, x)
    np.testing.assert_array_equal(out, np.zeros((4, 3, 5)))
