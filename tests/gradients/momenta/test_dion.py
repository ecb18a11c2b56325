"""Dion against a list of workers, its laws, and what it sends."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression, dion
from tests import helpers
from tests.gradients.momentum_checks import CUT, SHAPES, compiled, drawn, updated
from tests.helpers import assert_close

DECAY, SHARE = 0.9, 0.3
RANK = {k: math.ceil(SHARE * min(cut)) for k, cut in CUT.items()}


def tall(m: np.ndarray) -> np.ndarray:
    return m if m.shape[0] >= m.shape[1] else m.T


def unit(r: np.ndarray) -> np.ndarray:
    return r / np.linalg.norm(r, axis=0)


def reference(grads: list[Any], weights: Any, right: Any) -> Any:
    """What comes out in each step, and each worker's momentum."""
    workers = range(len(weights[0]))
    m = {k: [tall(np.zeros(cut)) for _ in workers] for k, cut in CUT.items()}
    q = {k: np.asarray(x[0, 0], np.float64) for k, x in right.items()}
    for g, weight in zip(grads, weights, strict=True):
        out = {}
        for k, (rows, columns) in CUT.items():
            for i in workers:
                if weight[i]:
                    share = len(weight) * weight[i] / weight.sum()
                    m[k][i] = m[k][i] + share * tall(g[k][i].reshape(rows, columns))
            here = [i for i in workers if weight[i]]
            basis = np.linalg.qr(sum(m[k][i] @ q[k] for i in here))[0]
            own = {i: m[k][i].T @ basis for i in here}
            q[k] = unit(np.sum([*own.values()], axis=0))
            o = basis @ q[k].T
            out[k] = math.sqrt(columns / rows) * (o if rows >= columns else o.T)
            for i in here:
                m[k][i] = m[k][i] - (1 - DECAY) * basis @ own[i].T
        yield out, {k: [x if CUT[k][0] >= CUT[k][1] else x.T for x in m[k]] for k in m}


@pytest.mark.few(2)
@pytest.mark.parametrize("workers", [2, 3, 5, 9])
def test_equals_a_list_of_workers_over_24_steps(workers):
    """With weights, and a worker that is absent in each seventh step."""
    tx: Any = dion("data", SHARE, decay=DECAY)
    grads = drawn(workers, 24)
    weights = np.random.default_rng(1).uniform(1, 3, (24, workers)).astype("f4")
    weights[::7, 0] = 0
    state = compiled(tx)[0](grads[0])
    expected = reference(grads, weights, state.right)
    for g, w, (outs, m) in zip(grads, weights, expected, strict=True):
        out, state = updated(tx, g, state, weight=jnp.asarray(w))
        for k, x in outs.items():
            own = np.asarray(state.momentum[k]).reshape(workers, *CUT[k])
            assert_close(own, np.stack(m[k]).astype("f4"), 1e-3)
            for i in range(workers):
                found = np.asarray(out[k][i]).reshape(CUT[k])
                assert_close(found, x.astype("f4"), 5e-3)


@pytest.mark.long
def test_the_mean_of_workers_is_one_worker_on_the_mean_gradient():
    """For any gradients: both messages are linear."""
    tx: Any = dion("data", SHARE, decay=DECAY)
    four = one = None
    for g in drawn(4, 12):
        out, four = updated(tx, g, four)
        mean = {k: x.mean(0, keepdims=True) for k, x in g.items()}
        expected, one = updated(tx, mean, one)
        for k in SHAPES:
            assert_close(np.asarray(out[k][0]), np.asarray(expected[k][0]), 5e-3)
            momentum = np.asarray(four.momentum[k]).mean(0)
            assert_close(momentum, np.asarray(one.momentum[k][0]), 1e-3)


def test_full_rank_of_one_matrix_tends_to_its_polar_factor():
    """Where M only grows, Q turns to its singular vectors: out to U V^T."""
    tx: Any = dion("data", 1.0, decay=0.0)
    u, _, vt = np.linalg.svd(drawn(1, 1)[0]["t"][0], full_matrices=False)
    g = {"t": (u * np.array([8, 4, 2, 1], "f4") @ vt)[None]}
    out, state = updated(tx, g)
    for _ in range(12):
        out, state = updated(tx, g, state)
    assert_close(np.asarray(out["t"][0]), math.sqrt(4 / 9) * u @ vt, 1e-2)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("bits", "algorithm"),
    [(32, "psum"), (8, "two_shot"), (16, "two_shot"), (8, "one_shot")],
)
def test_what_was_sent_is_taken_back_and_what_was_lost_waits(bits, algorithm):
    """mean(M) loses (1 - mu) P^ R^T, of which `out` has the directions."""
    tx: Any = dion("data", SHARE, decay=0.0, bits=bits, algorithm=algorithm)
    g = drawn(4, 1)[0]
    out, state = updated(tx, g)
    for k in SHAPES:
        came = np.asarray(out[k])
        assert (came == came[:1]).all()
        mean, left = g[k].mean(0), np.asarray(state.momentum[k]).mean(0)
        sent, o = tall((mean - left).reshape(CUT[k])), tall(came[0].reshape(CUT[k]))
        q = np.asarray(state.right[k])[0, 0]
        basis = o @ np.linalg.pinv(q.T) / math.sqrt(CUT[k][1] / CUT[k][0])
        np.testing.assert_allclose(basis.T @ basis, np.eye(RANK[k]), atol=1e-4)
        r = sent.T @ basis
        assert_close(sent, basis @ r.T, 1e-4)
        assert_close(unit(r), q, 1e-4)
        exact = tall(mean.reshape(CUT[k])).T @ basis
        assert (np.abs(r - exact).max() < 1e-5) == (bits == 32)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_what_comes_out_does_not_depend_on_the_size_of_gradients(size):
    tx: Any = dion("data", SHARE, decay=DECAY)
    g = drawn(2, 1)[0]
    sized = jax.tree.map(lambda x: np.float32(size) * x, g)
    assert_close(updated(tx, sized)[0], updated(tx, g)[0], 1e-3)
    zero = jax.tree.map(np.zeros_like, g)
    assert not any(np.any(x) for x in jax.tree.leaves(updated(tx, zero)[0]))


def test_lost_directions_are_found_again():
    """Also after steps without a gradient, or of rank 1."""
    tx: Any = dion("data", 0.5, decay=DECAY)
    g = drawn(2, 1)[0]
    zero = jax.tree.map(np.zeros_like, g)
    one = jax.tree.map(lambda x: np.ones_like(x), g)
    state = None
    for each in (zero, zero, one, one):
        _, state = updated(tx, each, state)
        for q in jax.tree.leaves(state.right):
            np.testing.assert_allclose(np.linalg.norm(q, axis=-2), 1, 1e-5)
            np.testing.assert_array_equal(q[0], q[1])
    out, _ = updated(tx, g, state)
    for k in SHAPES:
        rank = np.linalg.matrix_rank(np.asarray(out[k][0]).reshape(CUT[k]), 1e-3)
        assert rank == math.ceil(0.5 * min(CUT[k]))


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("bits", [32, 16, 8])
def test_bytes_traced_stated_and_compiled_are_the_same(bits):
    algorithm = "ring" if bits == 32 else "two_shot"
    tx: Any = dion("data", SHARE, bits=bits, algorithm=algorithm)
    params = {k: jnp.zeros(s) for k, s in SHAPES.items()}
    code = {
        32: compression.identity(),
        16: compression.cast(jnp.bfloat16),
        8: compression.quantize(8),
    }[bits]
    sides = [sum(RANK[k] * side(CUT[k]) for k in CUT) for side in (max, min)]
    chunks = [jax.ShapeDtypeStruct((-(-n // 2),), "float32") for n in sides]
    stated = 2 * sum(compression.payload_bytes(code, chunk) for chunk in chunks)
    helpers.assert_sends(tx, params, stated)


def test_absent_workers_wait_and_nan_is_forgotten():
    tx: Any = dion("data", SHARE, decay=DECAY)
    g, h = drawn(3, 2)
    _, before = updated(tx, g, weight=jnp.ones(3))
    gone = jax.tree.map(lambda x: np.where(np.arange(3) == 1, np.nan, x.T).T, h)
    out, after = updated(tx, gone, before, weight=jnp.array([1.0, 0.0, 2.0]))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(out))
    for k in SHAPES:
        np.testing.assert_array_equal(after.momentum[k][1], before.momentum[k][1])
        assert (after.momentum[k][0] != before.momentum[k][0]).any()
    out, after = updated(tx, gone, before, weight=jnp.ones(3))
    assert all(np.isnan(x).any((1, 2)).all() for x in (out["t"], out["w"]))
    helpers.assert_equal(after.momentum, before.momentum)
    helpers.assert_equal(after.right, before.right)
    out, after = updated(tx, gone, before, weight=jnp.zeros(3))
    assert not any(np.any(x) for x in jax.tree.leaves(out))
    helpers.assert_equal(after.momentum, before.momentum)
    assert all(np.any(x) for x in jax.tree.leaves(after.right))


@pytest.mark.long
def test_bfloat16_leaves_and_those_without_elements():
    tx: Any = dion("data", SHARE)
    g = {"e": jnp.zeros((2, 0, 3)), "w": jnp.ones((2, 4, 6), jnp.bfloat16)}
    out, state = jax.vmap(lambda g: tx.update(g, tx.init(g)), axis_name="data")(g)
    assert out["w"].dtype == jnp.bfloat16
    assert state.momentum["w"].dtype == jnp.float32
    assert out["e"].shape == (2, 0, 3)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"fraction": 0.0}, r"dion: fraction=0.0 must be in \(0, 1\]"),
        ({"decay": 1.0}, r"dion: decay=1.0 must be in \[0, 1\)"),
        ({"bits": 4}, "dion: bits=4 must be 32, 16 or 8"),
        ({"bits": 8, "algorithm": "psum"}, "cannot be added before"),
    ],
)
def test_refuses_numbers_that_cannot_be(knobs, message):
    with pytest.raises(ValueError, match=message):
        dion("data", **knobs)
