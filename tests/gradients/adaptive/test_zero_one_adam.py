"""0/1 Adam against AdamW, a list of workers, and the defects of public versions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, zero_one_adam
from tests import helpers
from tests.gradients.rate_references import start_of, zero_one_adam_reference
from tests.gradients.references import gradients, run
from tests.helpers import assert_close, mesh_of

B1, B2, EPS, DECAY, RATE = 0.9, 0.99, 1e-8, 0.1, 0.01
NEVER = 10**12


def made(freeze_step: int, rate: Any = RATE, **knobs: Any) -> Any:
    knobs = {"b1": B1, "b2": B2, "eps": EPS, "weight_decay": DECAY, **knobs}
    return zero_one_adam("data", rate, freeze_step=freeze_step, **knobs)


def history(tx: Any, grads: list[Any], mesh: Any, start: Any, **how: Any) -> list[Any]:
    """Params and state after each step, with the worker axis."""

    def own(params, batch):
        return jax.tree.map(lambda x: x[0], batch)

    return helpers.history(tx, own, start, grads, mesh, **how)


def spread(tree: Any) -> float:
    return max(float(np.ptp(x, axis=0).max()) for x in jax.tree.leaves(tree))


@pytest.mark.few(1)
@pytest.mark.parametrize("workers", [2, 3, 5, 8])
def test_equals_a_list_of_workers_across_the_switch(workers):
    grads = gradients(workers, steps=20)
    rates = [1e-20, *np.linspace(0.005, 0.02, 19)]
    table = jnp.asarray([0.0, *rates[1:]], jnp.float32)
    tx = made(
        9,
        lambda count: table[count],
        variance_doubling=2,
        local_doubling=3,
        most_local_steps=3,
    )
    synchronizations = {*range(1, 13), 14, 17, 20}
    expected = zero_one_adam_reference(
        grads,
        workers,
        start_of(),
        freeze_step=9,
        renewals={1, 2, 4, 6},
        synchronizations=synchronizations,
        b1=B1,
        b2=B2,
        eps=EPS,
        decay=DECAY,
        rates=rates,
    )
    found = history(tx, grads, emulate(workers), start_of())
    for t, ((params, state), each) in enumerate(
        zip(found, expected, strict=True), start=1
    ):
        x = jax.tree.map(lambda *x: np.stack(x).astype(np.float32), *each)
        assert_close(params, x, 1e-4)
        assert spread(state.anchor) == 0
        assert (spread(params) < 1e-6) == (t in synchronizations)


@pytest.mark.few(1)
@pytest.mark.parametrize("where", [mesh_of, emulate])
def test_is_adamw_without_loss(where):
    adamw = optax.adamw(RATE, B1, B2, EPS, weight_decay=DECAY)
    data = helpers.batches(6, rows=12)
    knobs = {"compressor": compression.identity(), "variance_doubling": NEVER}
    params, _, _ = helpers.train(made(6, **knobs), where(4), data)
    expected, _ = helpers.train_alone(adamw, data)
    assert relaxjax.spread(params) < 1e-6
    assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-5)


def test_without_loss_only_the_variance_differs_from_adamw():
    """The switch keeps momentum, bias correction and weight decay as they are."""
    constant = [gradients(4, steps=1)[0]] * 12  # then Adam's own v^ is the frozen one
    knobs = {"compressor": compression.identity(), "most_local_steps": 1}
    params = run(made(5, variance_doubling=2, **knobs), constant, 4, start_of())
    adamw = optax.chain(
        relaxjax.all_reduce("data"), optax.adamw(RATE, B1, B2, EPS, weight_decay=DECAY)
    )
    assert_close(params, run(adamw, constant, 4, start_of()), 1e-5)


@pytest.mark.slow
def test_bytes_of_renewals_and_of_silent_rounds():
    params = {k: jnp.zeros(s) for k, s in {"w": (64, 32), "b": (32,)}.items()}
    tx = made(4, variance_doubling=1, local_doubling=2, most_local_steps=4)
    exact = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, emulate(4))
    signs = 64 * 32 // 4 // 8 + 4  # of a quarter, and its scale
    bits = 2 * 3 * signs + 2 * 3 * 32 // 4 * 4
    expected = [exact + bits, bits, exact + bits, bits]
    expected += [bits, bits, 0, bits, 0, 0, 0, bits]
    sent = [
        relaxjax.wire_bytes(tx, params, emulate(4), start=step) for step in range(12)
    ]
    assert sent == expected
    assert relaxjax.wire_bytes(tx, params, emulate(4), steps=12) == sum(expected)


@pytest.mark.slow
def test_silent_rounds_under_a_mesh():
    """A conditional of collectives, on devices: the same numbers as emulated."""
    grads = gradients(4, steps=8)
    tx = made(3, variance_doubling=1, local_doubling=1, most_local_steps=3)
    real = history(tx, grads, mesh_of(4), start_of(), donate=True)
    emulated = history(tx, grads, emulate(4), start_of())
    for (x, _), (y, _) in zip(real, emulated, strict=True):
        assert_close(x, y, 1e-5)


def test_the_anchor_is_a_copy():
    """Otherwise a step that donates both would donate one buffer twice."""
    params = {"w": jnp.ones((4, 4))}
    state: Any = made(3).init(params)
    assert state.anchor["w"] is not params["w"]


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("first", [3, 8])
def test_unseen_rows_neither_travel_nor_move(first):
    """Even if a gradient comes, between two refreshes of v or after the last."""
    grads = gradients(4, steps=12)
    silent = gradients(4, steps=12)
    for t, (g, none) in enumerate(zip(grads, silent, strict=True), start=1):
        none["w"][:, 2] = 0
        if t < first or (first == 3 and t > 3):
            g["w"][:, 2] = 0
    tx = made(5, weight_decay=0.0, variance_doubling=2)  # renewed in steps 1, 2, 4
    found = run_last(tx, grads)
    np.testing.assert_array_equal(found["w"][2], start_of()["w"][2])
    helpers.assert_equal(found, run_last(tx, silent))


def run_last(tx: Any, grads: list[Any]) -> Any:
    params, _ = history(tx, grads, emulate(4), start_of())[-1]
    return jax.tree.map(lambda x: x[0], params)


@pytest.mark.long
def test_weights_decay_by_the_anchor_through_all_rounds():
    grads = [jax.tree.map(np.zeros_like, g) for g in gradients(2, steps=9)]
    tx = made(3, local_doubling=1, most_local_steps=4)
    # After step 3 synchronize steps 4, 6 and 10; 7, 8 and 9 add up.
    rounds = [1, 1, 1, 1, 2, 3]
    expected = {
        k: x * np.float32(np.prod([1 - n * RATE * DECAY for n in rounds]))
        for k, x in start_of().items()
    }
    found = history(tx, grads, emulate(2), start_of())
    assert_close(jax.tree.map(lambda x: x[1], found[-1][0]), expected, 1e-5)


def test_a_rate_of_zero_moves_nothing_and_divides_nothing_by_zero():
    tx = made(3, 0.0, local_doubling=1, most_local_steps=2)
    for params, state in history(tx, gradients(2, steps=8), emulate(2), start_of()):
        for worker in range(2):
            helpers.assert_equal(
                jax.tree.map(lambda x, w=worker: x[w], params), start_of()
            )
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(state))


def test_a_rate_that_touches_zero_and_rises_again_blows_nothing_up():
    table = jnp.asarray([*[RATE] * 6, 0.0, *[RATE] * 3], jnp.float32)
    tx = made(5, lambda count: table[count])
    for _, state in history(tx, gradients(2, steps=10), emulate(2), start_of()):
        assert max(np.abs(m).max() for m in jax.tree.leaves(state.mu)) < 10


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_16_bits_land_on_what_the_anchor_rounds_to(dtype):
    def narrow(tree):
        return jax.tree.map(lambda x: x.astype(dtype), tree)

    grads = [narrow(g) for g in gradients(2, steps=8)]
    tx = made(3, local_doubling=1, most_local_steps=2)  # the eighth synchronizes
    found = history(tx, grads, emulate(2), narrow(start_of()))
    for t in (1, 2, 3, 4, 6, 8):
        params, state = found[t - 1]
        helpers.assert_equal(params, narrow(state.anchor))
    assert found[-1][0]["w"].dtype == dtype
    exact = history(tx, gradients(2, steps=8), emulate(2), start_of())
    wide = jax.tree.map(lambda x: x.astype(np.float32), found[-1][0])
    assert_close(wide, exact[-1][0], 0.05)


@pytest.mark.parametrize(
    "name", ["freeze_step", "variance_doubling", "local_doubling", "most_local_steps"]
)
@pytest.mark.parametrize("value", [0, 2.5])
def test_refuses_what_is_no_number_of_steps(name, value):
    with pytest.raises(ValueError, match=f"zero_one_adam: {name}={value} must be a wh"):
        made(**{"freeze_step": 3, name: value})


@pytest.mark.long
def test_elements_of_small_variance_move_no_farther_than_others():
    """Pixels that are nearly always dark: one scale of signs does not fit them."""
    grads = gradients(4, steps=10)
    for g in grads:
        g["w"][:, :, 1] *= 1e-6
    params = run(made(5, weight_decay=0.0), grads, 4)
    assert np.abs(params["w"]).max() < 10 * 3 * RATE
