"""local_sgd: workers go their own ways, meet, and say nothing in between."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import all_reduce, compression, emulate, local_sgd, wire_bytes
from relaxjax.local_updates.common._local_steps import ExchangeSpec
from tests import helpers
from tests.compiled_text import by_condition
from tests.helpers import assert_close, assert_equal, mesh_of, pulled

N, STEPS = 4, 20


def identity_ref(p: np.ndarray) -> np.ndarray:
    return p


def sign_ref(p: np.ndarray) -> np.ndarray:
    return np.abs(p).mean() * np.where(p < 0, -1, 1)


def local_sgd_ref(targets, every, compress, rate=0.1, momentum=0.9):
    """Models of all workers after each step, pulled to their own targets."""
    n, d = targets.shape
    x = [np.zeros(d) for _ in range(n)]
    velocity = [np.zeros(d) for _ in range(n)]
    lost = [np.zeros(d) for _ in range(n)]
    anchor, seen = np.zeros(d), []
    for step in range(1, STEPS + 1):
        for i in range(n):
            velocity[i] = momentum * velocity[i] + (x[i] - targets[i])
            x[i] = x[i] - rate * velocity[i]
        if step % every == 0:
            sent = []
            for i in range(n):
                p = lost[i] + x[i] - anchor
                sent.append(compress(p))
                lost[i] = p - sent[i]
            anchor = anchor + sum(sent) / n
            x = [anchor.copy() for _ in range(n)]
        seen.append(np.stack(x))
    return seen


def targets_of(n: int = N) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 9))


COMPRESSORS = {
    "exact": (None, "auto", identity_ref),
    "sign": (compression.error_feedback(compression.sign()), "one_shot", sign_ref),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("compressor", COMPRESSORS.values(), ids=COMPRESSORS)
@pytest.mark.parametrize("every", [1, 3, 5])
@pytest.mark.parametrize("where", [mesh_of, emulate], ids=["mesh", "emulated"])
def test_against_a_list_of_workers(every, compressor, where):
    codec, algorithm, reference = compressor
    tx = optax.chain(
        optax.sgd(0.1, momentum=0.9),
        local_sgd("data", every, compressor=codec, algorithm=algorithm),
    )
    found = [params for params, _ in pulled(tx, targets_of(), where(N))]
    for x, expected in zip(
        found, local_sgd_ref(targets_of(), every, reference), strict=True
    ):
        np.testing.assert_allclose(x, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_every_step_is_plain_averaging_of_the_models():
    """Against optax and a mean, leaf by leaf; with Adam, which is not linear."""
    data = helpers.batches(6, rows=2 * N)
    tx = optax.chain(optax.adam(1e-2), local_sgd("data", 1))
    params, _, _ = helpers.train(tx, emulate(N), data)
    adam = optax.adam(1e-2)
    step = jax.jit(helpers.train_step_of(adam))
    model = jax.tree.map(jnp.asarray, helpers.problem())
    states = [adam.init(model)] * N
    for batch in data:
        models = []
        for i in range(N):
            own = jax.tree.map(lambda x, i=i: x[2 * i : 2 * i + 2], batch)
            moved, states[i], _ = step(model, states[i], own)
            models.append(moved)
        model = jax.tree.map(lambda *x: sum(x) / N, *models)
    assert_close(relaxjax.consensus(params), model, 1e-5)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "compressor", [None, compression.error_feedback(compression.quantize(4))]
)
def test_silent_steps_send_nothing(compressor):
    params, mesh = helpers.problem(), emulate(N)
    tx = optax.chain(optax.adam(0.1), local_sgd("data", 5, compressor=compressor))
    once = wire_bytes(all_reduce("data", compressor=compressor), params, mesh)
    sent = [wire_bytes(tx, params, mesh, start=k) for k in range(10)]
    assert once > 0
    assert sent == [0, 0, 0, 0, once] * 2
    assert wire_bytes(tx, params, mesh, steps=5) == once


def test_a_silent_step_sends_and_copies_nothing():
    tx: Any = local_sgd("data", 4)
    mesh = mesh_of(2)
    params, state = relaxjax.init(tx, helpers.problem(), mesh)
    step = relaxjax.data_parallel(
        lambda p, s, b: (*tx.update(p, s, p), {"b": b.sum()}), mesh
    )
    hlo = helpers.optimized_hlo(step.lower(params, state, np.zeros(2)))
    always, meeting = by_condition(hlo)
    assert not always
    assert meeting
    assert "conditional(" not in hlo  # XLA copies what goes through it unchanged


@pytest.mark.parametrize("where", [mesh_of, emulate], ids=["mesh", "emulated"])
def test_after_a_meeting_workers_are_a_rounding_apart(where):
    tx = optax.chain(optax.sgd(0.1), local_sgd("data", 4))
    before = np.zeros(9)
    for step, (params, state) in enumerate(pulled(tx, targets_of(), where(N)), 1):
        apart = relaxjax.spread(params)
        largest = max(np.abs(before).max(), np.abs(params).max())
        before = params
        assert relaxjax.spread(state[1].kept.anchor) == 0.0
        if step % 4 == 0:
            assert apart <= np.spacing(largest)
            np.testing.assert_allclose(
                params, state[1].kept.anchor, rtol=3e-7, atol=1e-8
            )
        else:
            assert apart > 0.01


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "ring"])
def test_what_is_lost_in_a_meeting_is_kept(algorithm):
    """mean e + a = mean e + a before + the mean change."""
    fed = compression.error_feedback(compression.quantize(2, stochastic_rounding=True))
    tx = local_sgd("data", 3, compressor=fed, algorithm=algorithm)
    mesh, targets = emulate(N), targets_of().astype(np.float32)

    @jax.jit
    def update(u, state, x):
        return jax.vmap(tx.update, axis_name="data")(u, state, x)

    x, state = relaxjax.init(tx, jnp.zeros(9), mesh)
    changes = np.zeros(9)
    residual = changes
    for step in range(1, STEPS + 1):
        u = 0.1 * (targets - x)
        if step % 3 == 0:
            changes += np.asarray(x + u - state.kept.anchor, np.float64).mean(axis=0)
        u, state = update(u, state, x)
        x = x + u
        residual = state.kept.reducer.compressed.feedback.residual
        kept = np.asarray(state.kept.anchor - residual, np.float64).mean(axis=0)
        np.testing.assert_allclose(kept, changes, rtol=1e-5, atol=1e-6)
    assert np.abs(residual).max() > 0.01


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_narrow_params_meet_exactly(dtype):
    tx: Any = optax.chain(optax.sgd(0.1), local_sgd("data", 2))
    start = jnp.linspace(1, 2, 5).astype(dtype)
    x: Any = jnp.stack([start] * N)
    state: Any = jax.vmap(tx.init)(x)
    before = x
    assert state[1].kept.anchor.dtype == jnp.float32
    gradients = jnp.asarray(targets_of()[:, :5], dtype)
    for _ in range(2):
        u, state = jax.vmap(tx.update, axis_name="data")(gradients, state, x)
        assert u.dtype == jnp.float32
        before, x = x, jax.vmap(optax.apply_updates)(x, u)
    assert x.dtype == dtype
    assert relaxjax.spread(x) == 0.0
    steps = (-0.1 * gradients).astype(dtype).astype(np.float32)
    expected = np.mean(np.asarray(before, np.float32) + steps, axis=0)
    np.testing.assert_allclose(state[1].kept.anchor[0], expected, rtol=1e-6)
    assert_equal(x[0], state[1].kept.anchor[0].astype(dtype))


def test_a_worker_of_weight_zero_goes_on_from_its_own_model():
    """And counts for nothing."""
    tx: Any = local_sgd("data", 1)

    def run(u, first, second):
        one, state = tx.update(u, tx.init(0 * u), 0 * u, weight=first)
        two, state = tx.update(0 * u, state, one, weight=second)
        return one, one + two, state.kept.anchor

    u, first = jnp.array([1.0, 3.0, 7.0]), jnp.array([3.0, 1.0, 0.0])
    found = jax.vmap(run, axis_name="data")(u, first, jnp.zeros(3))
    assert_equal(found, ([1.5, 1.5, 7.0], [1.5, 1.5, 7.0], [1.5] * 3))


def test_the_anchor_outlives_donated_params():
    x = jnp.ones(3)
    state: Any = local_sgd("data", 2).init(x)
    x.delete()
    assert_equal(state.kept.anchor, np.ones(3, np.float32))


def test_beside_a_reducer_for_other_leaves():
    """Leaves that meet now and then are not taken for forgotten ones."""
    labels = {"layer1": "often", "layer2": "seldom", "scale": "often"}
    tx = optax.chain(
        optax.sgd(0.1),
        optax.partition(
            {"often": all_reduce("data"), "seldom": local_sgd("data", 3)}, labels
        ),
    )
    params, _, _ = helpers.train(tx, mesh_of(N), helpers.batches(3, rows=N))
    assert relaxjax.spread(params["layer1"]) == 0.0
    assert relaxjax.spread(params["layer2"]) <= 1e-6
    params, _, _ = helpers.train(tx, mesh_of(N), helpers.batches(2, rows=N))
    assert relaxjax.spread(params["layer2"]) > 1e-4


def test_beside_it_forgotten_leaves_are_still_found():
    labels = {"layer1": "forgotten", "layer2": "seldom", "scale": "often"}
    fed = compression.error_feedback(compression.sign())
    tx = optax.partition(
        {
            "forgotten": optax.identity(),
            "often": all_reduce("data"),
            "seldom": local_sgd("data", 3, compressor=fed),
        },
        labels,
    )
    with pytest.raises(ValueError, match=r"updates of \['layer1/b', 'layer1/w'\]"):
        relaxjax.init(tx, helpers.problem(), mesh_of(N))


def test_typed_shard_map_with_a_worker_axis():
    """In one's own shard_map with check_vma=True, all state varying."""
    tx: Any = optax.chain(optax.sgd(1.0), local_sgd("data", 2))
    spec = jax.sharding.PartitionSpec("data")

    def local(g):
        x = jnp.zeros_like(g)
        state = tx.init(x)
        for _ in range(2):
            u, state = tx.update(g, state, x)
            x = x + u
        return x

    f = jax.shard_map(local, mesh=mesh_of(2), in_specs=spec, out_specs=spec)
    np.testing.assert_allclose(f(jnp.array([1.0, 3.0])), [-4.0, -4.0], rtol=1e-6)


@pytest.mark.parametrize("every", [0, -1, 1.5, None])
def test_bad_sync_every(every):
    message = rf"local_sgd: sync_every={every} must be a whole number, 1 or more"
    with pytest.raises(ValueError, match=message):
        local_sgd("data", every)


def test_bad_compressor():
    with pytest.raises(ValueError, match=r"cannot be added before they are decoded"):
        local_sgd("data", 2, compressor=compression.sign(), algorithm="psum")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"params": None}, r"local_sgd: update needs params, which it averages; call"),
        ({"updates": jnp.zeros(3)}, r"local_sgd: the tree changed since init: leaf"),
    ],
)
def test_bad_update(arguments, message):
    tx: Any = local_sgd("data", 2)

    def update(x):
        good = {"updates": x, "state": tx.init(x), "params": x}
        return tx.update(**(good | arguments))[0]

    with pytest.raises(ValueError, match=message):
        jax.vmap(update, axis_name="data")(jnp.zeros((2, 4)))


def test_methods_whose_models_count_alike_refuse_a_weight():
    x = jnp.zeros(2)
    state = local_sgd("data", 2).init(x)

    def require(weight):
        ExchangeSpec("method", "data").require(state, x, x, weight)
        return weight

    with pytest.raises(ValueError, match="method: weight= has no meaning here"):
        jax.eval_shape(jax.vmap(require, axis_name="data"), jnp.zeros(N))


def test_its_operations_are_known_to_be_of_models():
    found = helpers.stations_of(local_sgd("data", 2))
    assert found == {("local_sgd", "models", ("data",))}


def test_outside_the_axis():
    tx: Any = local_sgd("data", 2)
    with pytest.raises(NameError, match="local_sgd: no axis named 'data' here"):
        tx.update(jnp.zeros(2), tx.init(jnp.zeros(2)), jnp.zeros(2))
