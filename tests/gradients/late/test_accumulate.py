"""accumulate: the mean of several updates, and silence in between."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import accumulate, all_reduce, emulate, wire_bytes
from tests import helpers
from tests.compiled_text import by_condition
from tests.helpers import assert_close, assert_equal, mesh_of


def accumulate_ref(gradients: list[np.ndarray], every: int) -> list[np.ndarray]:
    """What comes out at each step, with nothing after it."""
    out, held = [], []
    for g in gradients:
        held.append(g)
        full = len(held) == every
        out.append(sum(held) / every if full else np.zeros_like(g))
        held = [] if full else held
    return out


@pytest.mark.few(2)
@pytest.mark.parametrize("every", [1, 2, 3])
def test_against_a_list(every):
    tx: Any = accumulate(optax.identity(), every)
    gradients = list(np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32))
    state = tx.init(jnp.zeros(4))
    for g, expected in zip(gradients, accumulate_ref(gradients, every), strict=True):
        out, state = tx.update(jnp.asarray(g), state)
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-7)


def test_large_batch_in_two_mini_steps_equals_one():
    data = helpers.batches(6, rows=8)
    tx: Any = accumulate(optax.chain(all_reduce("data"), optax.adam(1e-2)), every=2)
    params, _, _ = helpers.train(tx, mesh_of(4), data)
    both = [
        jax.tree.map(lambda *x: np.concatenate(x), *pair)
        for pair in zip(data[::2], data[1::2], strict=True)
    ]
    expected, _ = helpers.train_alone(optax.adam(1e-2), both)
    assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-5)


def test_multi_steps_gives_the_same_updates_and_sends_every_time():
    chain = optax.chain(all_reduce("data"), optax.sgd(0.1))
    ours = accumulate(chain, every=3)
    theirs = optax.MultiSteps(chain, 3).gradient_transformation()
    data = helpers.batches(6, rows=8)
    a, _, _ = helpers.train(ours, mesh_of(2), data)
    b, _, _ = helpers.train(theirs, mesh_of(2), data)
    assert_close(a, b, 1e-5)
    params = helpers.problem()
    once = wire_bytes(chain, params, emulate(2))
    assert wire_bytes(ours, params, emulate(2), steps=3) == once
    assert wire_bytes(theirs, params, emulate(2), steps=3) == 3 * once


def test_a_silent_step_sends_and_copies_nothing():
    tx: Any = accumulate(all_reduce("data"), every=4)
    mesh = mesh_of(2)
    params, state = relaxjax.init(tx, helpers.problem(), mesh)
    step = relaxjax.data_parallel(
        lambda p, s, b: (*tx.update(p, s), {"b": b.sum()}), mesh
    )
    hlo = helpers.optimized_hlo(step.lower(params, state, np.zeros(2)))
    always, meeting = by_condition(hlo)
    assert not always
    assert meeting
    assert "conditional(" not in hlo  # XLA copies what goes through it unchanged


def test_narrow_floats_are_summed_in_float32():
    tx: Any = accumulate(optax.identity(), every=4)
    one = jnp.asarray(1.0, jnp.bfloat16)
    gradients = [256.0, 1.0, 1.0, 1.0]  # 256 + 1 is 256 in bfloat16
    out, state = one, tx.init(one)
    for g in gradients:
        out, state = tx.update(jnp.asarray(g, jnp.bfloat16), state)
    assert out.dtype == jnp.bfloat16
    assert float(out) == float(jnp.asarray(259 / 4, jnp.bfloat16))


def test_inner_state_moves_only_with_communication():
    tx: Any = accumulate(optax.adam(0.1), every=2)
    state = tx.init(jnp.zeros(2))
    _, after_one = tx.update(jnp.ones(2), state)
    assert_equal(after_one.inner_state, state.inner_state)
    _, after_two = tx.update(jnp.ones(2), after_one)
    assert int(optax.tree.get(after_two, "count")) == 1
    assert_equal(after_two.accumulated, np.zeros(2, np.float32))


@pytest.mark.long
def test_typed_shard_map_with_a_worker_axis():
    """In one's own shard_map with check_vma=True, all state varying."""
    tx: Any = accumulate(optax.chain(all_reduce("data"), optax.sgd(0.1)), every=2)
    spec = jax.sharding.PartitionSpec("data")

    def local(g):
        state = tx.init(g)
        _, state = tx.update(g, state)
        out, _ = tx.update(g, state)
        return out

    f = jax.shard_map(local, mesh=mesh_of(2), in_specs=spec, out_specs=spec)
    np.testing.assert_allclose(f(jnp.array([1.0, 3.0])), [-0.2, -0.2], rtol=1e-6)


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_bad_every(every):
    with pytest.raises(ValueError, match=rf"every={every} must be a whole number"):
        accumulate(optax.sgd(0.1), every)


def test_changed_tree():
    tx: Any = accumulate(optax.sgd(0.1), 2)
    state = tx.init({"w": jnp.zeros(2)})
    with pytest.raises(ValueError, match=r"accumulate: the tree changed.*leaf 'w'"):
        tx.update({"w": jnp.zeros(3)}, state)


def test_a_weight_below_zero_is_visible_as_without_it():
    """Also where the sum of the weights is above zero."""
    tx: Any = accumulate(all_reduce("data"), 2)

    def both(x: jax.Array, weights: jax.Array) -> jax.Array:
        _, state = tx.update(x, tx.init(x), weight=weights[0])
        return tx.update(x, state, weight=weights[1])[0]

    x, weights = jnp.ones((2, 3)), jnp.array([[-1.0, 4.0]] * 2)
    assert np.isnan(jax.vmap(both, axis_name="data")(x, weights)).all()
    assert_equal(jax.vmap(both, axis_name="data")(x, abs(weights)), x)
