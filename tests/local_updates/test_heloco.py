"""HeLoCo against one tensor at a time in NumPy, its laws, and degenerate arrivals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from relaxjax import arrival_table, asynchronous_diloco, diloco, heloco
from tests.golden import references

RATE = 0.1
SHAPES = {"b": (3,), "w": (2, 5), "scalar": ()}
KNOBS = {"aligned": 0.2, "shrink": 1.0, "shrink_most": 1.0, "turn": 0.5, "doubt": 1.0}
MATH = {"learning_rate": 0.7, "momentum": 0.9}


def drawn(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {k: rng.normal(size=(rows, *s)).astype("f4") for k, s in SHAPES.items()}


def moved(tx: Any, gradients: Any, start: Any = None) -> tuple[Any, Any]:
    """The updates of arrivals [k, ...], and the last state."""
    first = jax.tree.map(lambda g: jnp.zeros_like(g[0]), gradients)
    state = tx.init(first) if start is None else start

    def step(state: Any, g: Any) -> Any:
        u, state = tx.update(g, state)
        return state, u

    state, us = jax.lax.scan(step, state, jax.tree.map(jnp.asarray, gradients))
    return us, state


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"weights": (0.5, 0.25, 1.0, 0.0)},
        {"turn": 3.0, "aligned": 1.0},
        {"shrink": 4.0, "shrink_most": 0.6, "doubt": 0.1},
        {"aligned": 0.0, "shrink": 0.0},
    ],
)
def test_equals_one_tensor_at_a_time_over_24_arrivals(knobs):
    tx: Any = heloco(0.7, **knobs)
    gradients = drawn(24)
    us, _ = moved(tx, gradients)
    config = MATH | {"weights": (1.0,)} | KNOBS | knobs
    for k, g in gradients.items():
        expected = references.heloco(config, g.reshape(24, -1))["params"]
        found = np.cumsum(np.asarray(us[k], np.float64), 0).reshape(24, -1)
        np.testing.assert_allclose(found, expected, atol=2e-5)


def workers_reference(target: Any, arrivals: Any, tokens: Any, steps: int) -> Any:
    """Models [workers] of two leaves after each step, by lists of workers."""
    n = len(tokens[0])
    x = [{k: np.zeros(t[0].shape) for k, t in target.items()} for _ in range(n)]
    a = {k: np.zeros(t[0].shape) for k, t in target.items()}
    m, fetched = dict(a), [dict(a) for _ in range(n)]
    for t in range(steps):
        for i in range(n):
            if tokens[t % len(tokens)][i]:
                x[i] = {k: x[i][k] - RATE * (x[i][k] - target[k][i]) for k in a}
        for i in arrivals[t % len(arrivals)]:
            if i < 0:
                continue
            for k in a:
                d = fetched[i][k] - x[i][k]
                g = references.corrected(d, m[k], KNOBS) / n
                m[k] = 0.9 * m[k] + 0.1 * g
                a[k] = a[k] - 0.7 * (g + 0.9 * m[k])
            x[i], fetched[i] = dict(a), dict(a)
        yield {k: np.stack([each[k] for each in x]) for k in a}


@pytest.mark.few(2)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_equals_a_list_of_workers_that_arrive_by_a_table(workers, dynamic):
    speeds = np.linspace(1, 0.4, workers).tolist()
    arrivals, tokens = arrival_table(speeds, 4, 12, dynamic=dynamic)
    outer: Any = heloco(0.7, weights=1 / workers)
    tx: Any = asynchronous_diloco(
        optax.sgd(RATE), "data", arrivals, outer, tokens=tokens
    )
    target = drawn(workers)

    def worker(target: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            x, state = carry
            u, state = tx.update(jax.tree.map(jnp.subtract, x, target), state, x)
            x = optax.apply_updates(x, u)
            return (x, state), x

        x = jax.tree.map(jnp.zeros_like, target)
        return jax.lax.scan(step, (x, tx.init(x)), None, 24)[1]

    xs = jax.jit(jax.vmap(worker, axis_name="data"))(target)
    expected = workers_reference(target, arrivals, tokens, 24)
    for t, models in enumerate(expected):
        for k in SHAPES:
            np.testing.assert_allclose(xs[k][:, t], models[k], atol=1e-5)


def test_the_arrivals_by_hand():
    """That of docs/local_updates.md: one passes, one is against m, one across."""
    tx: Any = heloco(1.0, momentum=0.5, turn=1.0)
    d = jnp.array([[2.0, 0.0], [-1.0, 0.0], [0.0, 0.25]])
    us, state = moved(tx, d)
    r = 0.25 / np.sqrt(2)
    np.testing.assert_allclose(state.momentum, [0.125 + r / 2, r / 2], atol=1e-6)
    expected = [[-2.5, 0], [0.375, 0], [-r - (0.125 + r / 2) / 2, -1.25 * r]]
    np.testing.assert_allclose(us, expected, atol=1e-6)


def test_across_keeps_its_length_and_against_loses_no_more_than_what_is_against():
    m = {"x": jnp.array([3.0, 0.0])}
    for angle in np.linspace(0, np.pi, 13):
        d = jnp.array([np.cos(angle), np.sin(angle)], jnp.float32)
        g = direction(heloco(1.0, aligned=1.0, turn=9.0, shrink=9.0), d, m)
        if np.cos(angle) >= -1e-6:
            np.testing.assert_allclose(jnp.linalg.norm(g), 1, atol=1e-5)
            assert g[0] >= d[0] - 1e-6
        else:
            np.testing.assert_allclose(g[1], d[1], atol=1e-6)
            assert d[0] - 1e-6 <= g[0] <= 1e-6


def direction(tx: Any, d: jax.Array, m: Any) -> jax.Array:
    """D^ of an arrival, from what is left of the momentum."""
    state = tx.init({"x": d})._replace(momentum=m)
    _, after = tx.update({"x": d}, state)
    return (after.momentum["x"] - 0.9 * m["x"]) / 0.1


def test_without_corrections_it_is_sgd_with_its_own_momentum():
    tx: Any = heloco(0.7, aligned=0.0, shrink=0.0)
    same: Any = optax.chain(optax.scale(0.1), optax.trace(0.9), optax.scale(-0.9 * 0.7))
    gradients = drawn(8)
    found, expected = moved(tx, gradients)[0], moved(same, gradients)[0]
    for k, g in gradients.items():
        np.testing.assert_allclose(found[k], expected[k] - 0.7 * g, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e12, 1e18])
def test_arrivals_of_another_scale_move_as_much_farther(scale):
    """Also where squares of the elements are out of float32's range."""
    tx: Any = heloco(0.7)
    gradients = drawn(6)
    once = moved(tx, gradients)[0]
    other = moved(tx, {k: g * np.float32(scale) for k, g in gradients.items()})[0]
    for k in SHAPES:
        scaled = np.asarray(other[k], np.float64) / scale
        np.testing.assert_allclose(scaled, once[k], rtol=2e-4, atol=1e-5)


def test_the_first_arrival_is_not_lost_however_strongly_others_turn():
    tx: Any = heloco(1.0, aligned=1.0, turn=5.0, doubt=0.0)
    us, state = moved(tx, {"x": jnp.array([[1.0, 2.0]])})
    np.testing.assert_allclose(us["x"], [[-1.09, -2.18]], rtol=1e-6)
    np.testing.assert_allclose(state.momentum["x"], [0.1, 0.2], rtol=1e-6)


def test_an_arrival_of_zero_moves_along_the_momentum_alone():
    us, state = moved(heloco(1.0), {"x": jnp.array([[1.0, 2.0], [0.0, 0.0]])})
    np.testing.assert_allclose(us["x"][1], [-0.081, -0.162], rtol=1e-5)
    np.testing.assert_allclose(state.momentum["x"], [0.09, 0.18], rtol=1e-5)
    us, _ = moved(heloco(1.0), {"x": jnp.zeros((2, 2))})
    assert (np.asarray(us["x"]) == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_nan_is_seen_unless_its_arrival_has_no_weight(bad):
    d = {"x": jnp.array([[1.0, 2.0], [bad, 1.0], [3.0, 1.0]])}
    us, state = moved(heloco(1.0), d)
    assert np.isnan(us["x"][2]).any()
    assert np.isnan(state.momentum["x"]).any()
    us, state = moved(heloco(1.0, weights=(1.0, 0.0)), d)
    assert (np.asarray(us["x"][1]) == 0).all()
    clean, other = moved(heloco(1.0), {"x": d["x"][::2]})
    np.testing.assert_array_equal(us["x"][::2], clean["x"])
    np.testing.assert_array_equal(state.momentum["x"], other.momentum["x"])


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_leaves_keep_their_dtype_and_turn_in_float32(dtype):
    tx: Any = heloco(0.7, shrink_most=0.3, aligned=0.9)
    d, m = ({k: jnp.asarray(g, dtype) for k, g in drawn(64, s).items()} for s in (0, 1))
    wide = [{k: x.astype(jnp.float32) for k, x in tree.items()} for tree in (d, m)]
    u, state = tx.update(d, tx.init(d)._replace(momentum=m))
    expected, same = tx.update(wide[0], tx.init(wide[0])._replace(momentum=wide[1]))
    for k in SHAPES:
        assert u[k].dtype == state.momentum[k].dtype == dtype
        exact = state.momentum[k] == same.momentum[k].astype(dtype)
        assert np.asarray(exact).mean() > 0.98
        eps = 2 * float(jnp.finfo(dtype).eps)
        np.testing.assert_allclose(u[k].astype("f4"), expected[k], rtol=eps, atol=eps)


def test_it_is_an_outer_optimizer_of_diloco():
    tx: Any = diloco(optax.sgd(RATE), "data", 2, outer=heloco(1.0))

    def worker(target: jax.Array) -> jax.Array:
        x = jnp.zeros_like(target)
        state = tx.init(x)
        for _ in range(2):
            u, state = tx.update(x - target, state, x)
            x = x + u
        return x

    target = jnp.asarray(drawn(3)["w"])
    xs = jax.vmap(worker, axis_name="data")(target)
    np.testing.assert_allclose(xs[0], 1.09 * 0.19 * target.mean(0), atol=1e-5)
    np.testing.assert_allclose(xs, np.broadcast_to(xs[:1], xs.shape), atol=1e-6)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"momentum": 1.0}, "momentum=1.0 must be in"),
        ({"aligned": 1.5}, r"aligned=1.5 must be in \[0, 1\]"),
        ({"shrink": -1}, "shrink=-1 must be 0 or more"),
        ({"shrink_most": 2}, r"shrink_most=2 must be in \[0, 1\]"),
        ({"turn": float("nan")}, "turn=nan must be 0 or more"),
        ({"doubt": -0.5}, "doubt=-0.5 must be 0 or more"),
        ({"weights": [1.0, -1.0]}, "must be finite numbers, 0 or more"),
        ({"weights": [[1.0]]}, "must be finite numbers, 0 or more"),
        ({"weights": []}, "must be finite numbers, 0 or more"),
        ({"weights": float("inf")}, "must be finite numbers, 0 or more"),
        ({"weights": "one"}, "must be finite numbers, 0 or more"),
        ({"weights": 0}, "are all 0, so that nothing ever moves"),
    ],
)
def test_refuses_numbers_that_cannot_be(knobs, message):
    with pytest.raises(ValueError, match=message):
        heloco(0.7, **knobs)
