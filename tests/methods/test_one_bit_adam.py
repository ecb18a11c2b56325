"""1-bit Adam against AdamW, a list of workers, and the defects of public versions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, one_bit_adam
from tests import helpers
from tests.helpers import assert_close, mesh_of
from tests.methods.references import SHAPES, gradients, one_bit_adam_reference, run

B1, B2, EPS, DECAY, RATE = 0.9, 0.99, 1e-8, 0.1, 0.05


def made(freeze_step: int, **knobs: Any) -> Any:
    knobs = {"b1": B1, "b2": B2, "eps": EPS, "weight_decay": DECAY, **knobs}
    return one_bit_adam("data", RATE, freeze_step=freeze_step, **knobs)


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
def test_equals_a_list_of_workers_across_the_switch(workers):
    grads = gradients(workers, steps=20)
    params = run(made(7), grads, workers)
    expected = one_bit_adam_reference(
        grads, workers, freeze_step=7, b1=B1, b2=B2, eps=EPS, decay=DECAY, rate=RATE
    )
    assert_close(params, expected, 1e-4)


@pytest.mark.parametrize("where", [mesh_of, emulate])
def test_is_adamw_before_the_freeze(where):
    adamw = optax.adamw(RATE, B1, B2, EPS, weight_decay=DECAY)
    data = helpers.batches(6, rows=12)
    params, _, _ = helpers.train(made(6), where(4), data)
    expected, _ = helpers.train_alone(adamw, data)
    assert relaxjax.spread(params) == 0.0
    assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-5)


def test_without_loss_only_the_variance_differs_from_adamw():
    """The switch keeps momentum, bias correction and weight decay as they are."""
    grads = gradients(4, steps=12)
    constant = [grads[0]] * 12  # then Adam's own v^ stays as it was at the switch
    lossless = made(5, compressor=compression.identity())
    params = run(lossless, constant, 4)
    adamw = optax.chain(
        relaxjax.all_reduce("data"), optax.adamw(RATE, B1, B2, EPS, weight_decay=DECAY)
    )
    assert_close(params, run(adamw, constant, 4), 1e-5)


def test_rows_without_any_gradient_neither_travel_nor_move():
    grads = gradients(4, steps=20)
    for g in grads:
        g["w"][:, 2] = 0
    start = {k: np.ones(s, np.float32) for k, s in SHAPES.items()}
    params = run(made(5, weight_decay=0.0), grads, 4, start)
    np.testing.assert_array_equal(params["w"][2], start["w"][2])
    assert np.abs(params["w"] - start["w"]).max() < 20 * 10 * RATE


def test_weights_still_decay_after_the_switch():
    grads = [jax.tree.map(np.zeros_like, g) for g in gradients(2, steps=8)]
    start = {k: np.ones(s, np.float32) for k, s in SHAPES.items()}
    params = run(made(3), grads, 2, start)
    expected = {k: x * (1 - RATE * DECAY) ** 8 for k, x in start.items()}
    assert_close(params, expected, 1e-5)


def test_the_switch_compiles_once_more_and_sends_less():
    params = {k: jnp.zeros(s) for k, s in {"w": (64, 32), "b": (32,)}.items()}
    tx = made(3)
    ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, emulate(4))
    sent = [
        relaxjax.wire_bytes(tx, params, emulate(4), start=step) for step in range(5)
    ]
    assert sent[:3] == [ring] * 3
    assert sent[3] == sent[4]
    signs = 64 * 32 // 4 // 8 + 4  # of a quarter, and its scale
    assert sent[3] == 2 * 3 * signs + 2 * 3 * 32 // 4 * 4
    assert relaxjax.wire_bytes(tx, params, emulate(4), steps=5) == sum(sent)

    traces = []

    def train_step(params, opt_state, batch):
        traces.append(1)
        updates, opt_state = tx.update(params, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"x": batch.sum()}

    state = relaxjax.init(tx, params, emulate(4))
    step = relaxjax.data_parallel(train_step, emulate(4))
    for turn in range(6):
        *state, _ = step(*state, np.zeros(4))
        assert len(traces) == (1 if turn < 3 else 2)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_16_bits_stay_finite(dtype):
    grads = [jax.tree.map(lambda g: g.astype(dtype), g) for g in gradients(2, steps=8)]
    params = run(made(3), grads, 2)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))


def test_a_nan_on_one_worker_shows_on_all():
    grads = gradients(4, steps=4)
    grads[3]["w"][1, 0, 0] = np.nan
    assert np.isnan(run(made(2), grads, 4)["w"]).any()


@pytest.mark.parametrize("freeze_step", [0, -1, 2.5])
def test_refuses_what_is_no_freeze_step(freeze_step):
    with pytest.raises(ValueError, match=rf"freeze_step={freeze_step} must be a whole"):
        made(freeze_step)


def test_refuses_params_that_would_not_be_compressed():
    with pytest.raises(ValueError, match="would compress nothing"):
        relaxjax.init(made(3), {"b": jnp.zeros(3)}, emulate(2))
