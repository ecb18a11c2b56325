"""1-bit LAMB against LAMB, a list of workers, and the defects of public versions."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, one_bit_lamb
from tests import helpers
from tests.gradients.rate_references import one_bit_lamb_reference, start_of
from tests.gradients.references import gradients, run
from tests.helpers import assert_close, mesh_of

B1, B2, EPS, DECAY, RATE = 0.9, 0.99, 1e-6, 0.1, 0.01


def made(freeze_step: int, **knobs: Any) -> Any:
    knobs = {"b1": B1, "b2": B2, "eps": EPS, "weight_decay": DECAY, **knobs}
    return one_bit_lamb("data", RATE, freeze_step=freeze_step, **knobs)


def uneven(workers: int, steps: int) -> list[Any]:
    """Gradients of very different sizes by layer, that grow over time."""
    sizes = {"w": 1.0, "v": 100.0, "b": 0.01}
    return [
        {k: (sizes[k] * 1.05**t * x).astype(np.float32) for k, x in g.items()}
        for t, g in enumerate(gradients(workers, steps))
    ]


def factors(tx: Any, grads: list[Any], leaf: str) -> list[float]:
    """r of a leaf after each step, with two workers."""
    state = relaxjax.init(tx, start_of(), emulate(2))
    own = helpers.step_of(lambda params, batch: jax.tree.map(lambda x: x[0], batch), tx)
    step = relaxjax.data_parallel(own, emulate(2))
    found = []
    for batch in grads:
        *state, _ = step(*state, batch)
        found.append(float(state[1][0].rates.factor[leaf][0]))
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("workers", [2, 3, 5, 8])
def test_equals_a_list_of_workers_across_the_switch(workers):
    grads = uneven(workers, steps=20)
    params = run(made(7), grads, workers, start_of())
    expected, factors = one_bit_lamb_reference(
        grads,
        workers,
        start_of(),
        freeze_step=7,
        b1=B1,
        b2=B2,
        eps=EPS,
        decay=DECAY,
        rate=RATE,
        d=0.9,
        bounds=(0.01, 10.0),
        factor_bounds=(0.5, 4.0),
        change=0.1,
    )
    assert_close(params, expected, 1e-4)
    seen = {round(r, 6) for step in factors for r in step.values()}
    assert min(seen) < 1 < max(seen)  # both directions
    assert len(seen) > 6


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("where", [mesh_of, emulate])
def test_is_lamb_before_the_freeze(where):
    def matrices(params):
        return jax.tree.map(lambda x: x.ndim > 1, params)

    lamb = optax.lamb(RATE, B1, B2, EPS, weight_decay=DECAY, mask=matrices)
    data, start = helpers.batches(6, rows=12), helpers.problem()
    start["layer1"]["b"][:] = 0  # has no norm
    tx = made(6, mask=matrices)
    params, _, _ = helpers.train(tx, where(4), data, params=start)
    expected, _ = helpers.train_alone(lamb, data, params=start)
    assert relaxjax.spread(params) == 0.0
    assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-6)


@pytest.mark.long
def test_without_loss_only_the_rates_differ_from_lamb():
    """The switch keeps momentum, bias correction and weight decay as they are."""
    constant = [gradients(4, steps=1)[0]] * 12  # then v^ and f^ stay as they are
    knobs = {"coefficient_decay": 0.0, "compressor": compression.identity()}
    params = run(made(5, **knobs), constant, 4, start_of())
    lamb = optax.lamb(RATE, B1, B2, EPS, weight_decay=DECAY)
    at_switch = run(
        optax.chain(relaxjax.all_reduce("data"), lamb), constant[:5], 4, start_of()
    )
    x = {k: x.astype(np.float64) for k, x in at_switch.items()}
    last = run(
        optax.chain(relaxjax.all_reduce("data"), lamb), constant[:4], 4, start_of()
    )
    g = {k: x.astype(np.float64).mean(0) for k, x in constant[0].items()}
    steady = {k: g[k] / (np.abs(g[k]) + EPS) for k in g}  # m^ = g and v^ = g^2

    def norm(x):
        return np.sqrt((x.astype(np.float64) ** 2).sum())

    c = {k: norm(last[k]) / norm(steady[k] + DECAY * last[k]) for k in g}
    for _ in range(7):
        x = {k: x[k] - RATE * c[k] * (steady[k] + DECAY * x[k]) for k in g}
    assert_close(params, {k: x[k].astype(np.float32) for k in params}, 1e-5)


def test_factors_keep_to_their_bounds_and_their_pace():
    grads = [
        {k: x * (1.0 if t < 4 else 1e-3) for k, x in g.items()}
        for t, g in enumerate(gradients(2, steps=16))
    ]
    bounds: dict[str, Any] = {"factor_bounds": (0.5, 1.6), "factor_change": 0.2}
    found = factors(made(4, b2=0.5, **bounds), grads, "b")
    np.testing.assert_allclose(found[:4], 1.0)
    np.testing.assert_allclose(found[4:8], [1.2, 1.44, 1.6, 1.6], rtol=1e-5)


@pytest.mark.long
def test_factors_are_of_seen_elements_alone():
    (base,) = gradients(2, steps=1)
    base["w"][:, 2] = 0  # whose v^ does not fall behind
    grads = [{k: x * np.float32(2**t) for k, x in base.items()} for t in range(8)]
    found = factors(made(4, b2=0.5, compressor=compression.identity()), grads, "w")
    np.testing.assert_allclose(found[4:], [0.9, 0.81, 0.729, 0.6561], rtol=1e-5)


def test_one_scale_of_signs_fits_layers_of_all_sizes():
    """Without s, the small layer would get steps of the large one's size."""
    grads = uneven(4, steps=20)
    params = run(made(10, weight_decay=0.0), grads, 4, start_of())
    exact = run(
        optax.chain(
            relaxjax.all_reduce("data"), optax.lamb(RATE, B1, B2, EPS, weight_decay=0.0)
        ),
        grads,
        4,
        start_of(),
    )
    for k, x in start_of().items():
        moved, expected = params[k] - x, exact[k] - x
        assert 0.5 < np.linalg.norm(moved) / np.linalg.norm(expected) < 2, k


@pytest.mark.long
def test_elements_of_small_variance_move_no_farther_than_others():
    """Pixels that are nearly always dark: one scale of signs does not fit them."""
    grads = gradients(4, steps=10)
    for g in grads:
        g["w"][:, :, 1] *= 1e-5
    params = run(made(5, weight_decay=0.0), grads, 4, start_of())
    moved = np.abs(params["w"] - start_of()["w"])
    assert moved[:, 1].max() < 2 * moved.max(axis=0)[[0, 2, 3, 4]].max()


@pytest.mark.long
def test_rows_unseen_at_the_switch_neither_travel_nor_move():
    grads, silent = gradients(4, steps=14), gradients(4, steps=14)
    for t, (g, none) in enumerate(zip(grads, silent, strict=True), start=1):
        none["w"][:, 2] = 0
        if t < 9:  # thereafter they have a gradient: too late
            g["w"][:, 2] = 0
    tx = made(5, weight_decay=0.0)
    params = run(tx, grads, 4, start_of())
    np.testing.assert_array_equal(params["w"][2], start_of()["w"][2])
    helpers.assert_equal(params, run(tx, silent, 4, start_of()))
    change = np.abs(params["w"] - start_of()["w"]).max()
    assert 0 < change < 14 * 10 * RATE


@pytest.mark.long
def test_weights_still_decay_after_the_switch():
    """With no gradient u is the decay alone: q = 10, and then r c = 10."""
    grads = [jax.tree.map(np.zeros_like, g) for g in gradients(2, steps=8)]
    params = run(made(3), grads, 2, start_of())
    expected = {k: x * np.float32((1 - RATE) ** 8) for k, x in start_of().items()}
    assert_close(params, expected, 1e-5)


def test_nothing_moves_without_gradients_and_decay():
    grads = [jax.tree.map(np.zeros_like, g) for g in gradients(2, steps=5)]
    params = run(made(3, weight_decay=0.0), grads, 2, start_of())
    helpers.assert_equal(params, start_of())


@pytest.mark.long
def test_a_layer_without_momentum_at_the_switch_goes_on():
    grads = gradients(2, steps=6)
    grads[2]["v"][:] = 0  # with b1 = 0, all that it remembers
    params = run(made(3, b1=0.0), grads, 2, start_of())
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))


@pytest.mark.long
def test_coefficients_are_clipped_where_they_are_kept():
    grads = [jax.tree.map(np.zeros_like, g) for g in gradients(2, steps=8)]
    params = run(made(3, coefficient_bounds=(0.5, 2.0)), grads, 2, start_of())
    factor = (1 - RATE) ** 3 * (1 - RATE * DECAY * 2.0) ** 5
    expected = {k: x * np.float32(factor) for k, x in start_of().items()}
    assert_close(params, expected, 1e-5)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"freeze_step": 0}, "freeze_step=0 must be a whole"),
        ({"freeze_step": 2.5}, "freeze_step=2.5 must be a whole"),
        ({"factor_bounds": (2.0, 4.0)}, r"factor_bounds=\(2.0, 4.0\) must be"),
        ({"factor_bounds": (0.0, 4.0)}, r"factor_bounds=\(0.0, 4.0\) must be"),
        ({"factor_bounds": (0.1, 0.9)}, r"factor_bounds=\(0.1, 0.9\) must be"),
        ({"coefficient_bounds": (3.0, 1.0)}, r"coefficient_bounds=\(3.0, 1.0\) must"),
        ({"coefficient_bounds": (0.0, 1.0)}, r"coefficient_bounds=\(0.0, 1.0\) must"),
        ({"coefficient_decay": 1.0}, "coefficient_decay=1.0 must be"),
        ({"coefficient_decay": -0.1}, "coefficient_decay=-0.1 must be"),
        ({"factor_change": -0.1}, "factor_change=-0.1 must be"),
    ],
)
def test_refuses_knobs_that_are_none(knobs, message):
    with pytest.raises(ValueError, match=f"one_bit_lamb: {message}"):
        made(**{"freeze_step": 3, **knobs})


@pytest.mark.long
def test_numbers_may_be_injected():
    grads = gradients(2, steps=4)
    numbers = {"b1": B1, "b2": B2, "eps": EPS, "weight_decay": DECAY}
    injected = optax.inject_hyperparams(one_bit_lamb, static_args="freeze_step")
    tx = injected("data", RATE, freeze_step=2, factor_change=0.1, **numbers)
    params = run(tx, grads, 2, start_of())
    assert_close(params, run(made(2), grads, 2, start_of()), 1e-5)
