"""Pushes and pulls in codes, against workers and servers in lists."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate
from tests import helpers
from tests.helpers import assert_close, mesh_of
from tests.ps.forms import reduced, train

DATA = helpers.batches(6, rows=24)


def sign(x: np.ndarray) -> np.ndarray:
    """As `compression.sign`: of a whole array, by its mean size; 0 counts as plus."""
    return np.where(np.signbit(x) & (x != 0), -1, 1) * np.abs(x).mean(dtype=np.float64)


def double_squeeze(targets: np.ndarray, rate: float, steps: int, feedback: bool):
    """Workers pulled to their targets by SGD at servers, one slice each, in signs."""
    n, d = targets.shape
    slices = np.array_split(np.arange(d), n)
    x, e, r = np.zeros(d), np.zeros((n, d)), np.zeros(d)
    models = []
    for _ in range(steps):
        p = (x - targets) + e
        told, mean, out = np.zeros((n, d)), np.zeros(d), np.zeros(d)
        for s, at in enumerate(slices):
            for i in range(n):
                told[i, at] = p[i, at] if i == s else sign(p[i, at])
            mean[at] = told[:, at].mean(axis=0)
            v = -rate * mean[at] + r[at]
            out[at] = sign(v)
            r[at] = feedback * (v - out[at])
        e = feedback * (p - told)
        x = x + out
        models.append(x)
    return models


@pytest.mark.few(2)
@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("where", ["mesh", "emulated"])
def test_like_lists_of_workers(n, feedback, where):
    """30 steps of n workers and n servers."""
    targets = helpers.targets_of(n, size=6 * n)
    compressor = compression.sign()
    if feedback:
        compressor = compression.error_feedback(compressor)
    tx = relaxjax.parameter_server(optax.sgd(0.1), "data", compressor=compressor)
    mesh = mesh_of(n) if where == "mesh" else emulate(n)
    found = helpers.pulled(tx, targets, mesh, steps=30)
    expected = double_squeeze(targets, 0.1, 30, feedback)
    for (params, _), x in zip(found, expected, strict=True):
        np.testing.assert_allclose(params, [x] * n, rtol=2e-4, atol=2e-5)


CODES = {
    "quantize4": compression.quantize(4),
    "top_k": compression.top_k(0.1),
    "sign": compression.sign(),
    "stochastic4": compression.quantize(4, stochastic_rounding=True),
    "random_k": compression.random_k(0.2),
    "natural": compression.natural(),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("compressor", CODES.values(), ids=CODES)
def test_nothing_is_lost_on_either_way(compressor):
    """Pushes add up to what is served, and pulls to what is served and sent."""
    n, steps, rate = 4, 5, 0.5
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(steps, n, 3, 7)).astype(np.float32)
    coded = compression.error_feedback(compressor)
    served: list[np.ndarray] = []

    def record(updates, state, params=None):
        del params
        return jax.tree.map(lambda u: -rate * u, updates), jax.tree.map(
            jnp.add, state, updates
        )

    adding = optax.GradientTransformation(
        lambda params: jax.tree.map(jnp.zeros_like, params), record
    )
    tx = relaxjax.parameter_server(adding, "data", compressor=coded)
    start = {"w": jnp.zeros((3, 7)), "empty": jnp.zeros((0, 2))}

    def step(params, state, batch):
        grads = {"w": batch[0], "empty": jnp.zeros((0, 2))}
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, {}

    state = relaxjax.init(tx, start, mesh_of(n))
    run = relaxjax.data_parallel(step, mesh_of(n))
    for batch in gradients:
        *state, _ = run(*state, batch)
        served.append(batch)
    params, kept = helpers.host(state)
    means = kept.optimizer["w"].ravel()[:21].reshape(3, 7)  # summed at the servers
    _, at_workers = kept.owed.workers
    _, at_servers = kept.owed.servers
    owed = at_workers.residual.mean(axis=0)
    total = gradients.mean(axis=1).sum(axis=0)
    np.testing.assert_allclose(means + owed, total, rtol=1e-4, atol=1e-5)
    owed = at_servers.residual.ravel()[:21].reshape(3, 7)
    np.testing.assert_allclose(params["w"][0] + owed, -rate * means, 1e-4, 1e-5)
    assert np.abs(at_workers.residual).max() > 1e-3
    assert np.abs(at_servers.residual).max() > 1e-3


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("feedback", [None, compression.error_feedback])
def test_codes_that_lose_nothing_change_nothing(feedback):
    compressor = compression.identity()
    compressor = feedback(compressor) if feedback else compressor
    expected = reduced(optax.adam(1e-2), mesh_of(4), DATA)
    for mesh in (mesh_of(4), emulate(4)):
        found = train("served", optax.adam(1e-2), mesh, DATA, compressor=compressor)
        assert_close(found, expected, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("compressor", CODES.values(), ids=CODES)
def test_mesh_and_emulation_agree(compressor):
    how = {"compressor": compression.error_feedback(compressor), "bucket_bytes": 64}
    found = train("served", optax.sgd(0.1), mesh_of(4), DATA[:3], **how)
    other = train("served", optax.sgd(0.1), emulate(4), DATA[:3], **how)
    assert_close(found, other, 1e-5)


@pytest.mark.long
def test_seeds_and_steps_draw_differently():
    compressor = compression.random_k(0.3)
    models = [
        train(
            "served",
            optax.sgd(0.1),
            emulate(4),
            DATA[:steps],
            compressor=compressor,
            seed=seed,
        )
        for seed, steps in ((0, 1), (1, 1), (0, 1))
    ]
    drawn = [
        np.asarray(m["layer1"]["w"] != helpers.problem()["layer1"]["w"]) for m in models
    ]
    assert (drawn[0] == drawn[2]).all()
    assert (drawn[0] != drawn[1]).any()


def test_each_step_draws_anew():
    compressor = compression.random_k(0.3)
    tx = relaxjax.parameter_server(optax.sgd(0.1), "data", compressor=compressor)
    state = relaxjax.init(tx, helpers.problem(), emulate(4))
    step = relaxjax.data_parallel(helpers.train_step_of(tx), emulate(4))
    models = [helpers.host(state[0])]
    for batch in DATA[:3]:
        *state, _ = step(*state, batch)
        models.append(helpers.host(state[0]))
    moved = [
        b["layer1"]["w"] != a["layer1"]["w"] for a, b in itertools.pairwise(models)
    ]
    assert (moved[0] != moved[1]).any()
    assert (moved[1] != moved[2]).any()


@pytest.mark.slow
def test_loco_feeds_back_too():
    compressor = compression.loco(compression.quantize(4), reset_every=None)
    data = DATA * 10
    expected = reduced(optax.sgd(0.05), mesh_of(4), data)
    found = train("served", optax.sgd(0.05), emulate(4), data, compressor=compressor)
    bare = compression.quantize(4)
    alone = train("served", optax.sgd(0.05), emulate(4), data, compressor=bare)
    error, without = (
        np.linalg.norm(m["layer1"]["w"] - expected["layer1"]["w"])
        for m in (found, alone)
    )
    assert error < without / 2


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_narrow_params_stay_narrow(dtype):
    start = helpers.problem(dtype=dtype)
    compressor = compression.error_feedback(compression.sign())
    found = train(
        "served",
        optax.sgd(0.1),
        emulate(4),
        DATA[:2],
        start=start,
        compressor=compressor,
    )
    assert {x.dtype for x in jax.tree.leaves(found)} == {np.dtype(dtype)}


@pytest.mark.few(1)
@pytest.mark.parametrize("n", [2, 4, 8])
def test_bytes(n):
    """2 (n - 1) payloads of a slice: traced, compiled, and by the formula."""
    start = {"w": np.zeros((8, 50), np.float32)}
    compressor = compression.error_feedback(compression.sign())
    tx = relaxjax.parameter_server(optax.sgd(0.1), "data", compressor=compressor)
    payload = jax.ShapeDtypeStruct((400 // n,), jnp.float32)
    expected = 2 * (n - 1) * compression.payload_bytes(compressor, payload)
    assert relaxjax.wire_bytes(tx, start, mesh_of(n)) == expected

    def step(params, state, batch):
        grads = jax.grad(lambda p: jnp.sum((p["w"] - batch.mean()) ** 2))(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, {}

    state = relaxjax.init(tx, start, mesh_of(n))
    run = relaxjax.data_parallel(step, mesh_of(n))
    batch = np.zeros((n, 1), np.float32)
    assert relaxjax.compiled_wire_bytes(run, *state, batch) == expected


def one_random_step(start, gradients, n: int):
    """After one step in random halves, each worker with a gradient of its own."""
    half = compression.random_k(0.5)
    tx: Any = relaxjax.parameter_server(
        optax.sgd(1.0), "data", compressor=half, bucket_bytes=1
    )
    state = relaxjax.init(tx, start, emulate(n))

    def step(params, opt_state, batch):
        grads = jax.tree.map(lambda x: x[0], batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {}

    params, *_ = relaxjax.data_parallel(step, emulate(n))(*state, gradients)
    return jax.tree.map(lambda x: np.asarray(x[0]), params)


@pytest.mark.slow
def test_each_transfer_draws_its_own():
    start = {"a": jnp.zeros(400), "b": jnp.zeros(400)}
    found = one_random_step(start, {k: np.ones((2, 400), "f4") for k in start}, 2)
    assert ((found["a"] != 0) != (found["b"] != 0)).any()


@pytest.mark.slow
def test_pushes_and_pulls_draw_differently():
    """Half of a half leaves a quarter; the same half leaves a half."""
    size = 4000
    gradients = np.zeros((2, size), np.float32)
    gradients[0, size // 2 :] = gradients[1, : size // 2] = 1.0  # none for itself
    found = one_random_step(jnp.zeros(size), gradients, 2)
    assert 0.2 < np.mean(found != 0) < 0.3
