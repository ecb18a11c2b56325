"""DES-LOC against lists of workers, its degenerate cases, and what it sends."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, desynced, emulate, wire_bytes
from tests import helpers
from tests.helpers import mesh_of, pulled, targets_of

RATE, B1, B2, EPS, STEPS = 0.1, 0.9, 0.95, 1e-8, 24
PERIODS = {"params": 2, "mu": 3, "nu": 5}
ADAM = optax.adam(RATE, B1, B2, EPS)


def reference(
    targets: np.ndarray, periods: dict[str, int], weights: Any = None, code: Any = None
) -> Iterator[dict[str, np.ndarray]]:
    """Adam of a list of workers, and the mean of each field after its period.

    `code(p)` is what of p arrives; the loss is fed back.
    """
    n, d = targets.shape
    s = {k: [np.zeros(d) for _ in range(n)] for k in ("params", "mu", "nu")}
    anchor = {k: np.zeros(d) for k in s}
    lost = {k: [np.zeros(d) for _ in range(n)] for k in s}
    weights = np.ones((STEPS, n)) if weights is None else weights
    for step in range(1, STEPS + 1):
        for i in range(n):
            g = s["params"][i] - targets[i]
            s["mu"][i] = B1 * s["mu"][i] + (1 - B1) * g
            s["nu"][i] = B2 * s["nu"][i] + (1 - B2) * g**2
            m, v = s["mu"][i] / (1 - B1**step), s["nu"][i] / (1 - B2**step)
            s["params"][i] = s["params"][i] - RATE * m / (np.sqrt(v) + EPS)
        w = weights[step - 1]
        for k, every in periods.items():
            if step % every:
                continue
            if code is None:
                mean = sum(w[i] * s[k][i] for i in range(n)) / sum(w)
            else:
                p = [anchor[k] - s[k][i] + lost[k][i] for i in range(n)]
                lost[k] = [x - code(x) for x in p]
                mean = anchor[k] - sum(map(code, p)) / n
                mean = np.maximum(mean, 0) if k == "nu" else mean
                anchor[k] = mean
            s[k] = [np.array(mean) if w[i] else s[k][i] for i in range(n)]
        yield {k: np.stack(x) for k, x in s.items()}


def assert_walks(tx: Any, expected: Any, n: int, weights: Any = None) -> None:
    """Params and both moments, in each step, of workers on one device."""
    targets = jnp.asarray(targets_of(n), jnp.float32)
    x = jnp.zeros_like(targets)
    state = jax.vmap(tx.init, axis_name="data")(x)

    @jax.jit
    def step(x: Any, state: Any, w: Any) -> Any:
        def one(x: Any, state: Any, target: Any, w: Any) -> Any:
            u, state = tx.update(x - target, state, x, weight=w)
            return optax.apply_updates(x, u), state

        return jax.vmap(one, axis_name="data")(x, state, targets, w)

    for k, there in enumerate(expected):
        x, state = step(x, state, None if weights is None else jnp.asarray(weights[k]))
        np.testing.assert_allclose(x, there["params"], atol=2e-4)
        for name in ("mu", "nu"):
            found = optax.tree.get(state, name)
            np.testing.assert_allclose(found, there[name], atol=2e-4, rtol=1e-4)


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_equals_a_list_of_workers(n):
    tx = desynced(ADAM, "data", periods=PERIODS)
    assert_walks(tx, reference(targets_of(n), PERIODS), n)


def test_equals_a_list_of_workers_that_are_sometimes_absent():
    weights = np.random.default_rng(0).uniform(1, 3, (STEPS, 3)).astype(np.float32)
    weights[1::4, 0] = 0
    weights[9, 1] = 0
    tx = desynced(ADAM, "data", periods=PERIODS)
    assert_walks(tx, reference(targets_of(3), PERIODS, weights), 3, weights)


def test_equals_a_list_of_workers_in_codes():
    """One scale for all signs: v would fall below 0."""

    def sign(p: np.ndarray) -> np.ndarray:
        return np.where(p >= 0, 1, -1) * np.abs(p).mean()

    code = compression.error_feedback(compression.sign(block_size=None))
    tx = desynced(ADAM, "data", periods=PERIODS, compressor=code, algorithm="one_shot")
    steps = list(reference(targets_of(3), PERIODS, code=sign))
    assert_walks(tx, steps, 3)
    assert min(x["nu"].min() for x in steps) == 0.0  # it was clipped


@pytest.mark.slow
def test_devices_and_emulation_agree():
    tx = desynced(ADAM, "data", periods=PERIODS)
    runs = [pulled(tx, targets_of(3), m, 12) for m in (emulate(3), mesh_of(3))]
    for (x, _), (y, _) in zip(*runs, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_without_moments_it_is_local_sgd():
    one = desynced(ADAM, "data", periods={"params": 3})
    same = optax.chain(ADAM, relaxjax.local_sgd("data", 3))
    for (x, _), (y, _) in zip(
        pulled(one, targets_of(4), emulate(4), 12),
        pulled(same, targets_of(4), emulate(4), 12),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.long
def test_equal_periods_are_local_adam_and_equal_gradients_adam():
    """All meet at once: workers are equal, moments too; of 1, it is one worker's."""
    tx = desynced(ADAM, "data", periods=dict.fromkeys(PERIODS, 4))
    targets = jnp.asarray(targets_of(3), jnp.float32)

    def train(target: Any, steps: int, tx: Any) -> Any:
        x = jnp.zeros_like(target)
        state = tx.init(x)
        for _ in range(steps):
            u, state = tx.update(x - target, state, x)
            x = optax.apply_updates(x, u)
        return x, optax.tree.get(state, "mu"), optax.tree.get(state, "nu")

    met = jax.vmap(lambda t: train(t, 8, tx), axis_name="data")(targets)
    for field in met:
        np.testing.assert_allclose(field, field[:1].repeat(3, 0), atol=1e-6)
    every = desynced(ADAM, "data", periods=dict.fromkeys(PERIODS, 1))
    same = jnp.stack([targets[0]] * 3)
    found = jax.vmap(lambda t: train(t, 6, every), axis_name="data")(same)
    for x, y in zip(found, train(targets[0], 6, ADAM), strict=True):
        np.testing.assert_allclose(x[1], y, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ring", "psum"])
def test_bytes_of_each_step_traced_and_compiled(algorithm):
    params = {"w": jnp.zeros((5, 3)), "b": jnp.zeros(4)}
    tx = desynced(ADAM, "data", periods=PERIODS, algorithm=algorithm)
    n = 2
    sent = [wire_bytes(tx, params, emulate(n), start=k) for k in range(30)]
    one = wire_bytes(
        relaxjax.all_reduce("data", algorithm=algorithm), params, mesh_of(n)
    )
    stated = [
        one * sum((k + 1) % every == 0 for every in PERIODS.values()) for k in range(30)
    ]
    assert sent == stated
    assert int(relaxjax.explain(tx, params, emulate(n)).period) == 30
    assert sum(sent) / 30 == pytest.approx(one * (1 / 2 + 1 / 3 + 1 / 5))
    state = relaxjax.init(tx, params, mesh_of(n))
    step = relaxjax.data_parallel(helpers.step_of(lambda p, b: p, tx), mesh_of(n))
    compiled = relaxjax.compiled_wire_bytes(step, *state, np.zeros(n))
    assert compiled == 3 * one  # the most of any step


@pytest.mark.long
def test_a_nan_of_an_absent_worker_stays_its_own():
    tx: Any = desynced(ADAM, "data", periods=dict.fromkeys(PERIODS, 1))
    gs = jnp.array([[1.0, 2.0], [np.nan, 1.0], [3.0, 1.0]])

    def one(g: Any, w: Any) -> Any:
        x = jnp.zeros(2)
        u, state = tx.update(g, tx.init(x), x, weight=w)
        return u, optax.tree.get(state, "mu")

    u, mu = jax.vmap(one, axis_name="data")(gs, jnp.array([1.0, 0.0, 1.0]))
    np.testing.assert_allclose(mu[0], 0.1 * np.array([2.0, 1.5]), rtol=1e-5)
    assert np.isfinite(u[::2]).all()
    assert np.isnan(u[1]).any()  # for a guard around it
    nobody, _ = jax.vmap(one, axis_name="data")(gs[:1], jnp.zeros(1))
    np.testing.assert_allclose(nobody, -RATE * np.ones((1, 2)), rtol=1e-5)


def test_narrow_params_and_moments_keep_their_dtypes():
    inner = optax.chain(optax.scale_by_adam(mu_dtype=jnp.bfloat16), optax.scale(-RATE))
    tx: Any = desynced(inner, "data", periods={"params": 1, "mu": 1})
    x = jnp.ones((3, 4), jnp.bfloat16)

    def one(x: Any, g: Any) -> Any:
        return tx.update(g, tx.init(x), x)

    u, state = jax.vmap(one, axis_name="data")(x, x * jnp.arange(3.0)[:, None])
    assert u.dtype == jnp.float32
    assert optax.tree.get(state, "mu").dtype == jnp.bfloat16
    np.testing.assert_allclose(optax.tree.get(state, "mu"), 0.1, rtol=1e-2)


@pytest.mark.long
def test_fields_of_parts_are_found_in_each():
    """Two optimizers have a field mu, and a param has that name and is not one."""
    parts: dict[Any, Any] = {"fast": optax.adam(0.1), "slow": optax.adam(0.01)}
    inner = optax.partition(parts, {"mu": "fast", "w": "slow"})
    tx: Any = desynced(inner, "data", periods={"params": 9, "mu": 1})
    params = {"mu": jnp.zeros(2), "w": jnp.zeros(3)}

    def one(g: Any) -> Any:
        grads = jax.tree.map(lambda x: g * jnp.ones_like(x), params)
        state = tx.update(grads, tx.init(params), params)[1].inner
        return {
            (label, name): getattr(part.inner_state[0], name)
            for label, part in state.inner_states.items()
            for name in ("mu", "nu")
        }

    found = jax.vmap(one, axis_name="data")(jnp.array([1.0, 3.0]))
    for (label, name), field in found.items():
        (x,) = jax.tree.leaves(field)
        assert x.shape == (2, {"fast": 2, "slow": 3}[label])
        expected = [0.2, 0.2] if name == "mu" else [0.001, 0.009]
        np.testing.assert_allclose(x[:, 0], expected, rtol=1e-5)


def test_an_empty_part_has_no_field_to_miss():
    tx: Any = desynced(ADAM, "data", periods=PERIODS)
    state = tx.init({})
    u, _ = jax.vmap(lambda _: tx.update({}, state, {}), axis_name="data")(jnp.ones(2))
    assert u == {}


@pytest.mark.parametrize(
    ("periods", "message"),
    [
        ({"mu": 3}, "has no 'params': models that are never averaged"),
        ({"params": 0}, r"periods\['params'\]=0 must be a whole number, 1 or more"),
        ({"params": 2, "mu": 1.5}, r"periods\['mu'\]=1.5 must be a whole number"),
    ],
)
def test_refuses_periods_that_cannot_be(periods, message):
    with pytest.raises(ValueError, match=message):
        desynced(ADAM, "data", periods=periods)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trace", "'trace', which is not a field .* its fields are count, mu, nu"),
        ("count", "'count', and .* is int32: only floats have a mean"),
    ],
)
def test_refuses_fields_that_are_not_there(name, message):
    tx = desynced(ADAM, "data", periods={"params": 2, name: 2})
    with pytest.raises(ValueError, match=message):
        relaxjax.init(tx, {"w": jnp.zeros(3)}, emulate(2))


@pytest.mark.long
def test_one_number_is_the_period_of_all_fields_of_floats():
    """Of counters and keys there is no mean, and they stay as they are."""
    adam = optax.inject_hyperparams(optax.adam)(learning_rate=0.1)
    named = dict.fromkeys(("params", "mu", "nu", "hyperparams"), 2)
    finals = []
    several: list[Any] = [2, np.int64(2), named]
    for periods in several:
        tx = relaxjax.desynced(adam, "data", periods=periods)
        params, state, _ = helpers.train(
            tx, relaxjax.emulate(4), helpers.batches(4, rows=12)
        )
        finals.append((params, optax.tree.get_all_with_path(state, "mu")[0][1]))
    helpers.assert_equal(finals[0], finals[2])
    helpers.assert_equal(finals[0], finals[1])
    with pytest.raises(ValueError, match=r"desynced: periods=0 must be a whole number"):
        relaxjax.desynced(adam, "data", periods=0)


class Mixed(NamedTuple):
    """A state one of whose fields has floats and a counter."""

    kept: Any


def test_one_number_leaves_out_a_field_that_has_a_counter_too():
    def init(params):
        return Mixed({"n": jnp.zeros((), jnp.int32), "x": params})

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        return updates, Mixed(jax.tree.map(lambda x: x + 1, state.kept))

    counting = optax.GradientTransformation(init, update)
    tx = relaxjax.desynced(
        optax.chain(optax.sgd(0.1, 0.9), counting), "data", periods=2
    )
    state: Any = tx.init(jnp.zeros(3))
    assert len(state.averaged) == 2  # params and the trace


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Model:
    """Fields that are called like those of optimizers' states."""

    count: Any
    nu: Any
    params: Any


@pytest.mark.few(4)
@pytest.mark.parametrize("codes", [None, compression.quantize(8)])
@pytest.mark.parametrize("periods", [2, {"params": 2, "nu": 1, "mu": 2}])
def test_fields_of_the_params_are_none_of_the_optimizer(periods, codes):
    tx = relaxjax.desynced(
        optax.adam(0.1), "data", periods=periods, compressor=codes, seed=1
    )

    def train(gradient: Any) -> Any:
        x = jax.tree.map(jnp.zeros_like, gradient)
        state = tx.init(x)
        for step in (1.0, -3.0):
            scaled = jax.tree.map(lambda g, s=step: s * g, gradient)
            updates, state = tx.update(scaled, state, x)
            x = optax.apply_updates(x, updates)
        return jax.tree.leaves((x, state))

    rows = [jnp.array([[1.0, 2.0], [3.0, -5.0]]) * k for k in (1, 2, 4)]
    step = jax.jit(jax.vmap(train, axis_name="data"))
    named = dict(zip(("count", "nu", "params"), rows, strict=True))
    helpers.assert_equal(step(Model(*rows)), step(named))
