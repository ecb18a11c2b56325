"""reduce_in_backward: gradients come out reduced, inside scans, with residuals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, compression, emulate, reduce_in_backward
from tests import helpers
from tests.helpers import assert_close, mesh_of
from tests.layered import (
    WORKERS,
    after_backward,
    data,
    feedback,
    layers,
    scanned_loss,
    trained,
)

places = pytest.mark.parametrize("place", [mesh_of, emulate], ids=["mesh", "emulated"])


def in_backward(params, x, **extra):
    reducer = all_reduce("data")
    return jax.grad(scanned_loss)(
        params, x, lambda layer: reduce_in_backward(layer, reducer, **extra)
    )


@pytest.mark.few(2)
@places
def test_equals_the_reduction_after_the_backward_pass(place):
    ours = trained(in_backward, optax.sgd(0.5), place(WORKERS))
    assert_close(ours, after_backward(), 1e-5)


@pytest.mark.long
def test_inside_a_checked_shard_map():
    def gradient(params, x):
        grads = in_backward(relaxjax.to_local(params, "data"), x)
        return jax.tree.map(lambda g: g[None], grads)

    specs = (P(), P("data"))
    mapped = jax.shard_map(
        gradient, mesh=mesh_of(WORKERS), in_specs=specs, out_specs=P("data")
    )
    ours = mapped(jax.tree.map(jnp.asarray, layers()), jnp.asarray(data()))
    whole = jax.grad(scanned_loss)(layers(), data())
    assert_close(jax.tree.map(lambda g: g[0], ours), whole, 1e-5)


def test_the_transfer_is_in_the_body_of_the_loop():
    mesh = mesh_of(WORKERS)
    params, state = relaxjax.init(optax.sgd(0.5), layers(), mesh, reduced_in_step=True)
    step = relaxjax.data_parallel(helpers.step_of(in_backward, optax.sgd(0.5)), mesh)
    hlo = helpers.optimized_hlo(step.lower(params, state, data()))
    reductions = [line for line in hlo.splitlines() if " all-reduce(" in line]
    entry = hlo[hlo.index("\nENTRY") :]
    assert reductions
    assert " all-reduce(" not in entry
    assert " while(" in entry


def test_the_last_microbatch_reduces_what_the_others_gathered():
    def microbatched(params, x):
        first, last = jnp.split(x, 2)
        gathered = jax.grad(scanned_loss)(params, first)

        def loss(params):
            def body(h, pair):
                layer, gradient = pair
                layer = reduce_in_backward(
                    layer, all_reduce("data"), accumulated=gradient
                )
                return jnp.tanh(h @ layer["w"] + layer["b"]), None

            h, _ = lax.scan(body, last, (params, gathered))
            return jnp.mean(h**2)

        return jax.tree.map(lambda g: g / 2, jax.grad(loss)(params))

    ours = trained(microbatched, optax.sgd(0.5), mesh_of(WORKERS))
    assert_close(ours, after_backward(), 1e-5)


def test_weights_give_the_mean_over_examples():
    """A worker without examples counts for nothing, whatever it holds."""

    def one(x, weight):
        reducer = all_reduce("data")

        def loss(w):
            return jnp.sum(x * reduce_in_backward(w, reducer, weight=weight))

        return jax.grad(loss)(jnp.zeros(2))

    x = jnp.array([[1.0, 2.0], [np.nan, np.inf], [4.0, 8.0]])
    ours = jax.vmap(one, axis_name="data")(x, jnp.array([2, 0, 1]))
    np.testing.assert_allclose(ours, [[2.0, 4.0]] * 3, rtol=1e-6)


def test_a_residual_is_carried_as_the_gradient_of_the_state():
    """Conservation: what came out and what is left make up what went in."""
    tx: Any = feedback()

    def loss(w, state, x):
        return jnp.sum(x * reduce_in_backward(w, tx, state=state))

    def one(x):
        w = jnp.zeros(5)
        state, total = tx.init(w), jnp.zeros(5)
        for _ in range(4):
            out, state = jax.grad(loss, argnums=(0, 1))(w, state, x)
            total = total + out
        return total, state.residual

    x = np.random.default_rng(2).normal(size=(WORKERS, 5)).astype(np.float32)
    total, residual = jax.vmap(one, axis_name="data")(jnp.asarray(x))
    assert float(jnp.abs(residual).max()) > 0
    np.testing.assert_allclose(
        np.asarray(total[0]) + np.mean(residual, 0), 4 * x.mean(0), rtol=1e-5
    )


def test_a_compressor_keeps_its_residual_in_the_backward_pass():
    codec = compression.error_feedback(compression.sign())
    tx: Any = all_reduce("data", compressor=codec)

    def one(x):
        w = jnp.zeros(5)

        def loss(w, state):
            return jnp.sum(x * reduce_in_backward(w, tx, state=state))

        state, total = tx.init(w), jnp.zeros(5)
        for _ in range(4):
            out, state = jax.grad(loss, argnums=(0, 1))(w, state)
            total = total + out
        return total, state.compressed.feedback.residual

    x = np.random.default_rng(2).normal(size=(WORKERS, 5)).astype(np.float32)
    total, residual = jax.vmap(one, axis_name="data")(jnp.asarray(x))
    assert float(jnp.abs(residual).max()) > 0
    np.testing.assert_allclose(
        np.asarray(total[0]) + np.mean(residual, 0), 4 * x.mean(0), rtol=1e-5
    )


def test_a_random_compressor_has_words_that_no_gradient_carries():
    tx = all_reduce("data", compressor=compression.random_k(0.5))
    w = jnp.zeros(5)
    with pytest.raises(ValueError, match=r"leaf 'compressed/words' is uint32.*cannot"):
        reduce_in_backward(w, tx, state=tx.init(w))


def test_a_reducer_with_arrays_needs_its_state():
    with pytest.raises(ValueError, match=r"keeps arrays.*residual.*pass state="):
        reduce_in_backward(jnp.zeros(3), feedback())


def test_state_that_a_gradient_cannot_carry():
    tx = optax.scale_by_schedule(lambda count: 1.0 * count)
    params = jnp.zeros(3)
    with pytest.raises(ValueError, match=r"leaf 'count' is int32\[\].*cannot carry"):
        reduce_in_backward(params, tx, state=tx.init(params))


@pytest.mark.long
def test_a_state_may_be_used_once():
    tx: Any = relaxjax.all_reduce(
        "data", compressor=compression.error_feedback(compression.sign())
    )

    def loss(w, state, twice):
        a = reduce_in_backward(w, tx, state=state)
        b = reduce_in_backward(w, tx, state=state) if twice else a
        return (a * b).sum()

    def gradients(w, twice):
        gradient = jax.grad(loss, argnums=(0, 1))
        _, state = gradient(w, tx.init(w), twice)
        return gradient(w, state, twice)[0]  # another step is another use

    w = jnp.ones((4, 5))
    mapped = jax.vmap(lambda w, twice=False: gradients(w, twice), axis_name="data")
    assert np.isfinite(mapped(w)).all()
    assert np.isfinite(jax.jit(mapped)(w)).all()
    with pytest.raises(ValueError, match="used twice in one loss"):
        jax.vmap(lambda w: gradients(w, True), axis_name="data")(w)
