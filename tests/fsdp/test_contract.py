"""What every form of sharded training keeps, whatever travels."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, fsdp
from tests.fsdp.forms import TWO, first_state, mesh_of_two
from tests.helpers import assert_close, assert_equal

EIGHT, FOUR = compression.quantize(8, block_size=4), compression.quantize(4)
RANDOM = compression.quantize(4, stochastic_rounding=True)
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gathered again": {"reshard_after_forward": True},
    "one leaf a message": {"bucket_bytes": 1, "order": ["v", "s", "m", "empty"]},
    "qwZ": {"weights": EIGHT},
    "qgZ": {"gradients": FOUR},
    "hpZ": {"secondary": "device"},
    "ZeRO++": {"weights": EIGHT, "gradients": FOUR, "secondary": "device"},
    "differences": {"weights": EIGHT, "difference": True},
    "error feedback": {"gradients": compression.error_feedback(FOUR)},
    "LoCo": {"gradients": compression.loco(FOUR)},
    "random codes": {"gradients": RANDOM},
    "SDP4Bit": fsdp.sdp4bit(TWO),
    "all, fed back": {
        "weights": EIGHT,
        "gradients": compression.error_feedback(FOUR),
        "difference": True,
    },
}
SHAPES = {"m": (5, 7), "v": (3,), "s": (), "empty": (0, 3)}
CODED = 0.1  # of the largest element of a leaf
STEPS, HOSTS, DEVICES = 4, 2, 2
_FORMS = pytest.mark.parametrize("form", FORMS)


def each_form(test):
    return pytest.mark.few(3)(_FORMS(test))


class Seen(NamedTuple):
    """After each step: all state, and the weights that each worker computed with."""

    states: list[Any]
    weights: list[Any]


def start(dtype: Any = np.float32) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {k: np.asarray(rng.normal(size=s), dtype) for k, s in SHAPES.items()}


def gradients(dtype: Any = np.float32) -> list[dict[str, np.ndarray]]:
    """Of each step, [worker, ...]."""
    rng, n = np.random.default_rng(6), HOSTS * DEVICES
    return [
        {k: rng.normal(size=(n, *s)).astype(dtype) for k, s in SHAPES.items()}
        for _ in range(STEPS)
    ]


def linear(params, batch):
    """Its gradient is the batch; beside it, the weights themselves."""
    parts = jax.tree.map(
        lambda w, g: jnp.sum((w * g[0]).astype(jnp.float32)), params, batch
    )
    return sum(jax.tree.leaves(parts)), params


def trained(mesh, form: str, batches, dtype: Any = np.float32, state: Any = None):
    """Plain descent at rate 0.1; from a state, or from the start."""
    tx = optax.sgd(0.1)
    loss = fsdp.gathered(linear, TWO, **FORMS[form])
    first = first_state(tx, loss, start(dtype), mesh)

    def step(shards, opt_state, owed, weights, batch):
        del weights

        def value_of(shards, owed):
            return loss(shards, batch, state=owed)

        both = jax.grad(value_of, argnums=(0, 1), has_aux=True)
        (grads, owed), weights = both(shards, owed)
        updates, opt_state = tx.update(grads, opt_state, shards)
        return optax.apply_updates(shards, updates), opt_state, owed, weights, {}

    run = relaxjax.data_parallel(step, mesh)
    state = first if state is None else state
    weights, seen = relaxjax.to_workers(start(dtype), mesh), Seen([], [])
    for batch in batches:
        *state, weights, _ = run(*state, weights, batch)
        seen.states.append(jax.device_get(state))
        seen.weights.append(jax.device_get(weights))
    return seen


@functools.cache
def on_devices(form: str) -> Seen:
    return trained(mesh_of_two(HOSTS, DEVICES), form, gradients())


@each_form
def test_all_compute_with_the_same_bits(form):
    for weights in on_devices(form).weights:
        for x in jax.tree.leaves(weights):
            assert_equal(list(x), [x[0]] * len(x))


@each_form
def test_the_mean_over_all_workers_is_what_moves_the_model(form):
    """In float32 to a rounding; codes to a part of a leaf's largest element."""
    coded = any(key in FORMS[form] for key in ("weights", "gradients"))
    expected, found = start(), on_devices(form)
    for batch, state in zip(gradients(), found.states, strict=True):
        mean = jax.tree.map(lambda g: g.mean(axis=0), batch)
        expected = jax.tree.map(lambda w, g: w - np.float32(0.1) * g, expected, mean)
        for name, w in fsdp.whole(state[0]).items():
            most = max(np.abs(g[name]).max(initial=0) for g in gradients())
            allowed = 0.1 * STEPS * CODED * most if coded else 1e-6
            np.testing.assert_allclose(w, expected[name], atol=allowed)


@each_form
def test_emulated_workers_do_as_devices(form):
    mesh = emulate({"host": HOSTS, "device": DEVICES})
    found, expected = trained(mesh, form, gradients()), on_devices(form)
    assert_close(found.states[-1], expected.states[-1], 1e-5)


@each_form
def test_a_state_is_all_that_a_run_needs(form):
    """From the middle, on the same devices, to the same bits."""
    mesh, half = mesh_of_two(HOSTS, DEVICES), STEPS // 2
    middle = on_devices(form).states[half - 1]
    found = trained(mesh, form, gradients()[half:], state=middle)
    assert_equal(found.states[-1], on_devices(form).states[-1])


@each_form
def test_still_gradients_move_nothing(form):
    still = jax.tree.map(np.zeros_like, gradients()[0])
    found = trained(mesh_of_two(HOSTS, DEVICES), form, [still, still])
    assert_equal(fsdp.whole(found.states[-1][0]), start())


@each_form
def test_sixteen_bits_stay_sixteen_bits(form):
    narrow = ml_dtypes.bfloat16
    found = trained(mesh_of_two(HOSTS, DEVICES), form, gradients(narrow), narrow)
    for x in jax.tree.leaves(fsdp.whole(found.states[-1][0])):
        assert x.dtype == narrow
    wide = jax.tree.map(lambda x: x.astype(np.float32), fsdp.whole(found.states[-1][0]))
    assert_close(wide, fsdp.whole(on_devices(form).states[-1][0]), 0.1)


@each_form
def test_what_is_kept_survives_a_step_that_was_not_finite(form):
    """Whoever leaves the step's params out goes on as if it had not been."""
    mesh, good = mesh_of_two(HOSTS, DEVICES), gradients()
    bad = jax.tree.map(np.copy, good[0])
    bad["m"][1, 2, 3], bad["v"][:] = np.nan, np.inf
    before = on_devices(form).states[0]
    spoiled = trained(mesh, form, [bad], state=before).states[0]
    for x in jax.tree.leaves(spoiled[2]):
        assert np.isfinite(np.asarray(x, np.float32)).all()
    state = [*before[:2], spoiled[2]]
    after = trained(mesh, form, good[1:], state=state).states[-1]
    expected = on_devices(form).states[-1]
    assert_close(fsdp.whole(after[0]), fsdp.whole(expected[0]), 0.1)
