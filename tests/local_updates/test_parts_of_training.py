"""Transformations that act in a part of training; post-local SGD."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import before_step, compression, emulate, from_step
from tests import helpers
from tests.helpers import mesh_of, pulled, targets_of

RATE, MOMENTUM, STEPS, START, EVERY = 0.1, 0.9, 30, 11, 4


def reference(targets: np.ndarray) -> list[np.ndarray]:
    """Models of all workers after each step; each has its own momentum."""
    n, d = targets.shape
    xs, vs, seen = np.zeros((n, d)), np.zeros((n, d)), []
    for t in range(STEPS):
        gs = xs - targets
        if t < START:
            gs = np.repeat(gs.mean(axis=0, keepdims=True), n, axis=0)
        vs = MOMENTUM * vs + gs
        xs = xs - RATE * vs
        if t >= START and (t - START) % EVERY == EVERY - 1:
            xs = np.repeat(xs.mean(axis=0, keepdims=True), n, axis=0)
        seen.append(xs)
    return seen


def post_local_sgd(start: int = START) -> Any:
    return relaxjax.post_local_sgd(optax.sgd(RATE, MOMENTUM), "data", EVERY, start)


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_post_local_sgd_equals_a_list_of_workers(n):
    expected = reference(targets_of(n))
    for mesh in (emulate(n), mesh_of(n)):
        found = pulled(post_local_sgd(), targets_of(n), mesh, STEPS)
        for (x, _), ref in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, ref, atol=1e-5)


def test_post_local_sgd_from_the_start_is_local_sgd():
    same = optax.chain(optax.sgd(RATE, MOMENTUM), relaxjax.local_sgd("data", EVERY))
    for (x, _), (y, _) in zip(
        pulled(post_local_sgd(0), targets_of(3), emulate(3), 9),
        pulled(same, targets_of(3), emulate(3), 9),
        strict=True,
    ):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("algorithm", ["psum", "one_shot"])
def test_bytes_of_each_step(algorithm):
    params = {"w": jnp.zeros((64, 64)), "b": jnp.zeros(64)}
    how: Any = {"algorithm": algorithm}
    whole = relaxjax.wire_bytes(relaxjax.all_reduce("data", **how), params, emulate(4))
    tx = relaxjax.post_local_sgd(optax.sgd(RATE), "data", EVERY, 3, **how)
    each = [relaxjax.wire_bytes(tx, params, emulate(4), start=t) for t in range(12)]
    assert each == [whole] * 3 + [0, 0, 0, whole] * 2 + [0]


@pytest.mark.long
def test_what_begins_later_begins_with_the_params_it_finds():
    """Four bits of the change since the switch, under a momentum that starts then."""
    codec = compression.error_feedback(compression.quantize(4))
    outer_half = relaxjax.diloco(optax.identity(), "data", EVERY, compressor=codec)
    optimizer = optax.sgd(RATE)
    tx = optax.chain(
        before_step(relaxjax.all_reduce("data"), START),
        optimizer,
        from_step(outer_half, START),
    )
    targets = targets_of(4)
    found = pulled(tx, targets, emulate(4), STEPS)
    (there, _), after = found[START - 1], found[START:]
    data = [targets.astype(np.float32)] * (STEPS - START)
    fresh = helpers.history(
        optax.chain(optimizer, outer_half),
        lambda x, target: x - target[0],
        jnp.asarray(there[0]),
        data,
        emulate(4),
    )
    for (x, _), (y, _) in zip(after, fresh, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_before_and_from_share_training_out():
    """Tens before step 2, hundreds from it on."""
    tx: Any = optax.chain(
        before_step(optax.scale(10.0), 2), from_step(optax.scale(100.0), 2)
    )
    state, seen = tx.init(jnp.zeros(())), []
    for _ in range(5):
        state = relaxjax.advance_phases(state)
        out, state = tx.update(jnp.ones(()), state, jnp.zeros(()))
        seen.append(float(out))
    assert seen == [10, 10, 100, 100, 100]


def test_a_step_of_its_own_and_then_no_more_programs():
    traces = []

    def gradient(x, target):
        traces.append(1)
        return x - target[0]

    data = [targets_of(2).astype(np.float32)] * 12
    helpers.history(post_local_sgd(3), gradient, jnp.zeros(5), data, emulate(2))
    assert len(traces) == 3


@pytest.mark.parametrize("part", [before_step, from_step])
def test_refuses(part):
    with pytest.raises(ValueError, match=f"{part.__name__}: step=-1 must be a whole"):
        part(optax.identity(), -1)


def test_refuses_to_begin_without_params():
    tx = from_step(optax.identity(), 1)
    with pytest.raises(ValueError, match="from_step: update needs params"):
        tx.update(jnp.ones(()), tx.init(jnp.ones(())))


def test_params_and_state_may_be_donated_together():
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    helpers.assert_no_shared_buffer((params, post_local_sgd().init(params)))
    assert jax.tree.leaves(post_local_sgd().init(params))


@pytest.mark.parametrize("end", [0, 2])
def test_phases_of_what_begins_later_are_set_by_the_host_too(end):
    """The state made at the switch is as the step was given it."""
    reducer = relaxjax.power_sgd("data", rank=1, start_after=end, min_compression=0)
    lock_step = before_step(relaxjax.all_reduce("data"), 3)
    tx = optax.chain(lock_step, from_step(reducer, 3), optax.sgd(0.1))

    def train_step(params, opt_state, batch):
        grads = jax.tree.map(lambda x: x * batch.mean(), params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"n": batch.mean()}

    mesh = emulate(2)
    state = relaxjax.init(tx, {"w": jnp.ones((6, 8))}, mesh)
    step = relaxjax.data_parallel(train_step, mesh)
    for _ in range(8):
        *state, _ = step(*state, jnp.ones((2, 3)))
    assert relaxjax.spread(state[0]) < 1e-6
