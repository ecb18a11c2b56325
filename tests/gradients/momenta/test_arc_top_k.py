"""ARC-Top-K against lists of workers, its laws, and what it sends."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import arc_top_k, compression, emulate
from relaxjax._core._random import normals
from tests import helpers
from tests.gradients.momentum_checks import updated
from tests.helpers import assert_close

SHARE, RANK, ETA = 0.3, 2, 0.4
SHAPES = {"b": (5,), "c": (2, 3, 7), "s": (), "t": (9, 2), "w": (6, 11)}
CUT = {"c": (6, 7), "w": (6, 11)}  # of t the sketch would be as large as it is
WIDEST = 11


def drawn(workers: int, steps: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        {k: rng.normal(size=(workers, *s)).astype("f4") for k, s in SHAPES.items()}
        for _ in range(steps)
    ]


@jax.jit
def sketch(key: jax.Array) -> jax.Array:
    return normals(key, [(WIDEST, RANK)])[0]


def chosen(p: np.ndarray, step: int, seed: int = 0) -> np.ndarray:
    """K, of the mean of p."""
    key = jax.random.fold_in(jax.random.key(seed), step)
    v = np.asarray(sketch(key), "f8")[: p.shape[1]]
    lengths = np.linalg.norm(p @ v, axis=1)
    return np.argsort(-lengths)[: math.ceil(SHARE * len(p))]


def total(p: dict[int, np.ndarray]) -> np.ndarray:
    return np.sum([*p.values()], axis=0)


def reference(grads: list[Any], weights: Any) -> Any:
    """Out, and each worker's v and h, after each step."""
    workers = range(len(weights[0]))
    v, h = (
        {k: [np.zeros(s) for _ in workers] for k, s in SHAPES.items()} for _ in "vh"
    )
    out = {k: np.zeros(s) for k, s in SHAPES.items()}
    for step, (g, weight) in enumerate(zip(grads, weights, strict=True)):
        here = [i for i in workers if weight[i]]
        for k in SHAPES:
            for i in here:
                share = len(here) * weight[i] / weight.sum()
                v[k][i] = (1 - ETA) * v[k][i] + ETA * share * g[k][i]
            p = {i: v[k][i] - h[k][i] for i in here}
            if k in CUT:
                p = {i: x.reshape(CUT[k]) for i, x in p.items()}
                rows = chosen(total(p), step)
                for x in p.values():
                    x[np.setdiff1d(np.arange(len(x)), rows)] = 0
            for i, x in p.items():
                h[k][i] = h[k][i] + x.reshape(SHAPES[k])
            out[k] = out[k] + total(p).reshape(SHAPES[k]) / len(weight)
        yield out, v, h


def stacked(arrays: list[np.ndarray]) -> np.ndarray:
    return np.stack(arrays).astype("f4")


@pytest.mark.few(2)
@pytest.mark.parametrize("workers", [2, 3, 5, 9])
def test_equals_a_list_of_workers_over_24_steps(workers):
    """With weights, and a worker that is absent in each seventh step."""
    tx: Any = arc_top_k("data", SHARE, rank=RANK, eta=ETA)
    grads, state = drawn(workers, 24), None
    weights = np.random.default_rng(1).uniform(1, 3, (24, workers)).astype("f4")
    weights[::7, 0] = 0
    steps = zip(grads, weights, reference(grads, weights), strict=True)
    for g, w, (expected, v, h) in steps:
        out, state = updated(tx, g, state, weight=jnp.asarray(w))
        for k in SHAPES:
            assert_close(
                np.asarray(state.momentum[k]), np.stack(v[k]).astype("f4"), 1e-4
            )
            assert_close(np.asarray(state.known[k]), np.stack(h[k]).astype("f4"), 1e-4)
            assert_close(np.asarray(state.mean[k][0]), expected[k].astype("f4"), 1e-4)
            np.testing.assert_array_equal(out[k], state.mean[k])
            assert (np.asarray(out[k]) == np.asarray(out[k][:1])).all()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("bits", "algorithm"),
    [(32, "psum"), (8, "two_shot"), (16, "two_shot"), (8, "one_shot"), (8, "ring")],
)
def test_what_comes_out_is_the_mean_of_what_is_known(bits, algorithm):
    """Also of a worker that is absent, and through which others' messages pass."""
    tx: Any = arc_top_k("data", SHARE, rank=RANK, bits=bits, algorithm=algorithm)
    state = None
    for step, g in enumerate(drawn(4, 12)):
        weight = jnp.array([1.0, 2.0, 1.0, 0.0 if step % 3 == 1 else 3.0])
        out, state = updated(tx, g, state, weight=weight)
        assert_close(
            jax.tree.map(lambda h: np.asarray(h).mean(0), state.known),
            jax.tree.map(lambda x: np.asarray(x)[0], out),
            1e-5,
        )


def test_the_mean_of_workers_is_one_worker_on_the_mean_gradient():
    tx: Any = arc_top_k("data", SHARE, rank=RANK, eta=ETA)
    four = one = None
    for g in drawn(4, 8):
        mean = {k: x.mean(0, keepdims=True) for k, x in g.items()}
        out, four = updated(tx, g, four)
        expected, one = updated(tx, mean, one)
        for k in SHAPES:
            assert_close(np.asarray(out[k][:1]), np.asarray(expected[k]), 1e-4)
            v = np.asarray(four.momentum[k]).mean(0)
            assert_close(v, np.asarray(one.momentum[k][0]), 1e-4)


def test_gradients_that_stay_are_reached_row_by_row():
    """One row of six in each step: what is exact is not sent again."""
    tx: Any = arc_top_k("data", 1 / 6, rank=RANK, eta=1.0)
    g = {"w": drawn(3, 1)[0]["w"]}
    mean, state, left = g["w"].mean(0), None, []
    for _ in range(6):
        out, state = updated(tx, g, state)
        left.append(np.abs(mean - np.asarray(out["w"][0])).max(1) > 1e-6)
    assert [int(x.sum()) for x in left] == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("rank", [1, 4])
def test_what_is_not_sent_is_less_than_of_rows_at_random(rank):
    """Over draws of V: |p - c|^2 is at most (1 - k / n) |p|^2 in the mean."""
    tx: Any = arc_top_k("data", 1 / 3, rank=rank, eta=1.0)
    g = {"w": drawn(1, 1)[0]["w"] * np.geomspace(0.5, 2, 6, dtype="f4")[:, None]}

    def lost(step: jax.Array) -> jax.Array:
        state = tx.init({"w": g["w"][0]})._replace(step=step)
        out, _ = tx.update({"w": jnp.asarray(g["w"][0])}, state)
        return jnp.sum((out["w"] - g["w"][0]) ** 2)

    steps = jnp.arange(200, dtype=jnp.uint32)[None]
    found = jax.vmap(lambda s: jax.lax.map(lost, s), axis_name="data")(steps)
    share = float(found.mean()) / float((g["w"] ** 2).sum())
    assert share < (0.6 if rank == 1 else 0.5), share  # at random 2 / 3


def test_rows_are_chosen_by_what_workers_have_in_common():
    """In row 0 they disagree, and far: the mean of it is 0."""
    tx: Any = arc_top_k("data", 0.1, eta=1.0)
    g = np.ones((2, 4, 9), "f4")
    g[:, 0] = [[100.0], [-100.0]]
    g[:, 2] = 3
    out, state = updated(tx, {"w": g})
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(out["w"][0]).any(1)), [2])
    assert not np.any(state.known["w"][:, 0])


@pytest.mark.parametrize("size", [1e-30, 1e30, 1e38])
def test_what_comes_out_scales_with_the_gradients(size):
    tx: Any = arc_top_k("data", SHARE, rank=RANK, eta=ETA)
    g = drawn(2, 1)[0]
    sized = jax.tree.map(lambda x: np.float32(size) * x, g)
    found = updated(tx, sized)[0]
    found = jax.tree.map(lambda x: np.asarray(x) / np.float32(size), found)
    assert_close(found, jax.tree.map(np.asarray, updated(tx, g)[0]), 1e-5)
    zero = jax.tree.map(np.zeros_like, g)
    assert not any(np.any(x) for x in jax.tree.leaves(updated(tx, zero)[0]))


@pytest.mark.few(2)
@pytest.mark.parametrize("bits", [32, 16, 8])
def test_bytes_traced_stated_and_compiled_are_the_same(bits):
    """Sketches of c and w beside b, s and t; then two rows of each."""
    algorithm = "ring" if bits == 32 else "two_shot"
    tx: Any = arc_top_k("data", SHARE, rank=RANK, bits=bits, algorithm=algorithm)
    params = {k: jnp.zeros(s) for k, s in SHAPES.items()}
    code = {
        32: compression.identity(),
        16: compression.cast(jnp.bfloat16),
        8: compression.quantize(8),
    }[bits]
    first, floats = RANK * 12 + 5 + 1 + 18, 2 * (7 + 11)
    chunk = jax.ShapeDtypeStruct((-(-floats // 2),), "float32")
    stated = 2 * (4 * first // 2 + compression.payload_bytes(code, chunk))
    helpers.assert_sends(tx, params, stated)


def test_absent_workers_wait_and_nan_is_forgotten():
    tx: Any = arc_top_k("data", SHARE, rank=RANK, eta=ETA)
    g, h = drawn(3, 2)
    _, before = updated(tx, g, weight=jnp.ones(3))
    gone = jax.tree.map(lambda x: np.where(np.arange(3) == 1, np.nan, x.T).T, h)
    out, after = updated(tx, gone, before, weight=jnp.array([1.0, 0.0, 2.0]))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(out))
    for k in SHAPES:
        for x, y in zip(before[1:3], after[1:3], strict=True):
            np.testing.assert_array_equal(y[k][1], x[k][1])
            assert (y[k][0] != x[k][0]).any()
    out, after = updated(tx, gone, before, weight=jnp.ones(3))
    assert all(np.isnan(x).all() for x in jax.tree.leaves(out))
    helpers.assert_equal(after[1:4], before[1:4])
    out, after = updated(tx, gone, before, weight=jnp.zeros(3))
    helpers.assert_equal(out, before.mean)
    helpers.assert_equal(after[1:4], before[1:4])


def test_one_value_that_is_not_finite_leaves_the_other_leaves_alone():
    tx: Any = arc_top_k("data", SHARE, rank=RANK, eta=ETA)
    g, h = drawn(3, 2)
    _, before = updated(tx, g)
    h["w"][2, 5, 3] = np.inf
    out, after = updated(tx, h, before)
    assert np.isnan(out["w"]).all()
    np.testing.assert_array_equal(after.momentum["w"], before.momentum["w"])
    for k in ("b", "c", "s", "t"):
        assert np.isfinite(out[k]).all()
        assert (np.asarray(after.momentum[k]) != np.asarray(before.momentum[k])).all()


def test_bfloat16_leaves_and_those_without_elements():
    tx: Any = arc_top_k("data", SHARE, rank=1)
    g = {"e": jnp.zeros((2, 0, 3)), "w": jnp.ones((2, 4, 6), jnp.bfloat16)}
    out, state = updated(tx, g)
    assert out["w"].dtype == jnp.bfloat16
    assert state.momentum["w"].dtype == state.known["w"].dtype == jnp.float32
    assert out["e"].shape == (2, 0, 3)
    empty: Any = tx.init({})
    assert jax.vmap(lambda _: tx.update({}, empty)[0], axis_name="data")(
        jnp.zeros(2)
    ) == ({})


def test_batches_of_matrices_choose_rows_each():
    def whole(name: str, shape: Any) -> Any:
        return shape

    tx: Any = arc_top_k("data", 0.25, rank=1, eta=1.0, as_matrices=whole)
    g = np.ones((2, 2, 4, 8), "f4")
    g[:, 0, 1], g[:, 1, 3] = 5, 7
    out, _ = updated(tx, {"w": g})
    rows = np.argwhere(np.asarray(out["w"][0]).any(2))
    np.testing.assert_array_equal(rows, [[0, 1], [1, 3]])


def test_a_run_that_is_taken_up_again_goes_on_as_it_was():
    """V depends on the step, which the state holds, and on the seed."""
    grads = drawn(3, 6)

    def walked(tx: Any, grads: Any, state: Any) -> list[Any]:
        outs = []
        for g in grads:
            out, state = updated(tx, g, state)
            outs.append((out, state))
        return outs

    tx: Any = arc_top_k("data", SHARE, rank=RANK, eta=ETA)
    again: Any = arc_top_k("data", SHARE, rank=RANK, eta=ETA)
    other: Any = arc_top_k("data", SHARE, rank=RANK, eta=ETA, seed=1)
    whole = walked(tx, grads, None)
    kept = jax.tree.map(np.array, whole[2][1])
    helpers.assert_equal(walked(again, grads[3:], kept)[-1], whole[-1])
    apart = walked(other, grads[3:], kept)[-1][0]
    assert (np.asarray(apart["w"]) != np.asarray(whole[-1][0]["w"])).any()


def test_quadratics_of_unlike_workers_reach_the_common_minimum():
    tx = optax.chain(arc_top_k("data", 0.2, eta=0.5), optax.sgd(0.1))
    rng = np.random.default_rng(0)
    aim = {"b": rng.normal(size=(4, 5)), "w": rng.normal(size=(4, 10, 12))}
    aim = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), aim)

    def walk(aim: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            x, state = carry
            u, state = tx.update(optax.tree.sub(x, aim), state, x)
            return (optax.apply_updates(x, u), state), None

        x = optax.tree.zeros_like(aim)
        return jax.lax.scan(step, (x, tx.init(x)), None, 600)[0][0]

    found = jax.jit(jax.vmap(walk, axis_name="data"))(aim)
    for k, x in aim.items():
        assert np.abs(found[k] - x.mean(0)).max() < 1e-4


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"density": 0.0}, r"arc_top_k: density=0.0 must be in \(0, 1\]"),
        ({"rank": 0}, "arc_top_k: rank=0 must be a whole number, 1 or more"),
        ({"eta": 1.5}, r"arc_top_k: eta=1.5 must be in \(0, 1\]: 1 is EF21"),
        ({"bits": 4}, "arc_top_k: bits=4 must be 32, 16 or 8"),
        ({"bits": 8, "algorithm": "psum"}, "cannot be added before"),
    ],
)
def test_refuses_numbers_that_cannot_be(knobs, message):
    with pytest.raises(ValueError, match=message):
        arc_top_k("data", **knobs)


def test_matrices_that_would_not_get_smaller_travel_whole():
    tx: Any = arc_top_k("data", eta=1.0)
    g = {"w": np.arange(48, dtype="f4").reshape(2, 8, 3)}
    out, state = updated(tx, g)
    np.testing.assert_array_equal(out["w"][0], g["w"].mean(0))
    np.testing.assert_array_equal(state.known["w"], g["w"])
    cut = arc_top_k("data", as_matrices=lambda name, shape: (2, 3, 3))
    with pytest.raises(ValueError, match="as_matrices made 2 matrices of 3 x 3 of"):
        relaxjax.init(cut, {"w": jnp.zeros((8, 3))}, emulate(2))
