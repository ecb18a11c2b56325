"""1-bit Adam against AdamW, a list of workers, and the defects of public versions."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, one_bit_adam
from tests import helpers
from tests.gradients.references import SHAPES, gradients, one_bit_adam_reference, run
from tests.helpers import assert_close, mesh_of

B1, B2, EPS, DECAY, RATE = 0.9, 0.99, 1e-8, 0.1, 0.05


def made(freeze_step: int, **knobs: Any) -> Any:
    knobs = {"b1": B1, "b2": B2, "eps": EPS, "weight_decay": DECAY, **knobs}
    return one_bit_adam("data", RATE, freeze_step=freeze_step, **knobs)


@pytest.mark.few(2)
@pytest.mark.parametrize("workers", [2, 3, 5, 8])
def test_equals_a_list_of_workers_across_the_switch(workers):
    grads = gradients(workers, steps=20)
    params = run(made(7), grads, workers)
    expected = one_bit_adam_reference(
        grads, workers, freeze_step=7, b1=B1, b2=B2, eps=EPS, decay=DECAY, rate=RATE
    )
    assert_close(params, expected, 1e-4)


@pytest.mark.few(2)
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


def test_elements_of_small_variance_move_no_farther_than_others():
    """Pixels that are nearly always dark: one scale of signs does not fit them."""
    grads = gradients(4, steps=10)
    for g in grads:
        g["w"][:, :, 1] *= 1e-6
    params = run(made(5, weight_decay=0.0), grads, 4)
    assert np.abs(params["w"]).max() < 10 * 3 * RATE


def test_weights_still_decay_after_the_switch():
    grads = [jax.tree.map(np.zeros_like, g) for g in gradients(2, steps=8)]
    start = {k: np.ones(s, np.float32) for k, s in SHAPES.items()}
    params = run(made(3), grads, 2, start)
    expected = {k: x * (1 - RATE * DECAY) ** 8 for k, x in start.items()}
    assert_close(params, expected, 1e-5)
