"""Dion2 and NorDion2 against lists of workers, their laws, and what they send."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, dion2, emulate
from relaxjax.gradients.momenta import _dion2
from tests import helpers
from tests.gradients.momentum_checks import CUT, SHAPES, drawn, updated
from tests.helpers import assert_close

DECAY, SHARE = 0.9, 0.3


def orthonormal(u: np.ndarray) -> np.ndarray:
    x = u / (1.01 * np.linalg.norm(u))
    for a, b, c in _dion2._POLAR_EXPRESS:
        x = a * x + b * x @ x.T @ x + c * x @ x.T @ x @ x.T @ x
    return x


def reference(grads: list[Any], weights: Any, neuron_decay: float | None) -> Any:
    """What comes out in each step, and each worker's momentum."""
    workers = range(len(weights[0]))
    m = {k: [np.zeros(cut) for _ in workers] for k, cut in CUT.items()}
    v = {k: np.zeros(cut[1]) for k, cut in CUT.items()}
    for g, weight in zip(grads, weights, strict=True):
        out = {}
        for k, (rows, columns) in CUT.items():
            by_column = neuron_decay is not None or columns < rows
            lines = columns if by_column else rows
            for i in workers:
                if weight[i]:
                    share = len(weight) * weight[i] / weight.sum()
                    m[k][i] = m[k][i] + share * g[k][i].reshape(rows, columns)
            here = [m[k][i] * (weight[i] != 0) for i in workers]
            here = [x.T if by_column else x for x in here]
            norms = sum(np.abs(x).sum(1) for x in here)
            chosen = np.argsort(-norms)[: math.ceil(SHARE * lines)]
            o = orthonormal(np.mean([x[chosen] for x in here], axis=0))
            if neuron_decay is not None:
                squares = (o**2).mean(1)
                v[k][chosen] = (
                    neuron_decay * v[k][chosen] + (1 - neuron_decay) * squares
                )
                even = o / np.sqrt(v[k][chosen])[:, None]
                o = even * np.linalg.norm(o) / np.linalg.norm(even)
            full = np.zeros((lines, here[0].shape[1]))
            full[chosen] = o
            out[k] = math.sqrt(columns / rows) * (full.T if by_column else full)
            for i in workers:
                if weight[i]:
                    (m[k][i].T if by_column else m[k][i])[chosen] *= DECAY
        yield out, m


@pytest.mark.few(2)
@pytest.mark.parametrize("neuron_decay", [None, 0.8])
@pytest.mark.parametrize("workers", [2, 3, 5, 9])
def test_equals_a_list_of_workers_over_24_steps(workers, neuron_decay):
    """With weights, and a worker that is absent in each seventh step."""
    tx: Any = dion2("data", SHARE, decay=DECAY, neuron_decay=neuron_decay)
    grads, state = drawn(workers, 24), None
    weights = np.random.default_rng(1).uniform(1, 3, (24, workers)).astype("f4")
    weights[::7, 0] = 0
    steps = zip(grads, weights, reference(grads, weights, neuron_decay), strict=True)
    for g, w, (expected, m) in steps:
        out, state = updated(tx, g, state, weight=jnp.asarray(w))
        for k, x in expected.items():
            own = np.asarray(state.momentum[k]).reshape(workers, *CUT[k])
            assert_close(own, np.stack(m[k]).astype("f4"), 1e-4)
            for i in range(workers):
                found = np.asarray(out[k][i]).reshape(CUT[k])
                assert_close(found, x.astype("f4"), 5e-3)


@pytest.mark.long
@pytest.mark.parametrize("fraction", [1.0, SHARE])
def test_the_mean_of_workers_is_one_worker_on_the_mean_gradient(fraction):
    """Of any gradients if all rows are sent, else where workers agree on the rows."""
    tx: Any = dion2("data", fraction, decay=DECAY)
    share = np.array([0.1, 1.9, 0.4, 1.6], "f4")
    four = one = None
    for g in drawn(4, 6):
        if fraction < 1:
            g = {k: np.einsum("i,...->i...", share, x[0]) for k, x in g.items()}
        mean = {k: x.mean(0, keepdims=True) for k, x in g.items()}
        out, four = updated(tx, g, four)
        expected, one = updated(tx, mean, one)
        for k in SHAPES:
            assert_close(np.asarray(out[k][0]), np.asarray(expected[k][0]), 5e-3)
            momentum = np.asarray(four.momentum[k]).mean(0)
            assert_close(momentum, np.asarray(one.momentum[k][0]), 1e-4)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("bits", "algorithm"),
    [(32, "psum"), (8, "two_shot"), (16, "two_shot"), (8, "one_shot")],
)
def test_what_was_sent_is_taken_back_and_what_was_lost_waits(bits, algorithm):
    """mean(M) loses (1 - mu) of what was decoded, the same rows on all workers."""
    tx: Any = dion2("data", SHARE, decay=0.0, bits=bits, algorithm=algorithm)
    g = drawn(4, 1)[0]
    out, state = updated(tx, g)
    for k in SHAPES:
        came = np.asarray(out[k])
        assert (came == came[:1]).all()
        mean, left = g[k].mean(0), np.asarray(state.momentum[k]).mean(0)
        sent, o = (mean - left).reshape(CUT[k]), came[0].reshape(CUT[k])
        there = o != 0
        assert np.abs(sent[~there]).max() < 1e-6
        lines = there.any(1) if CUT[k][0] <= CUT[k][1] else there.any(0)
        u = sent[lines] if CUT[k][0] <= CUT[k][1] else sent[:, lines].T
        o = o[lines] if CUT[k][0] <= CUT[k][1] else o[:, lines].T
        scale = math.sqrt(CUT[k][1] / CUT[k][0])
        assert_close(o, (scale * orthonormal(u)).astype("f4"), 1e-2)
        assert (np.abs(left.reshape(CUT[k])[there]).max() < 1e-6) == (bits == 32)


def test_momentum_stays_bounded_where_workers_disagree():
    """The mean of these gradients is 0 in half of the rows."""
    tx: Any = dion2("data", 0.25, decay=0.9)
    apart = np.ones((2, 8, 9), "f4")
    apart[1, ::2] = -1

    def walk(g: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            _, state = tx.update({"w": g}, state)
            return state, jnp.abs(state.momentum["w"]).max()

        return jax.lax.scan(step, tx.init({"w": g}), None, 400)[1]

    most = np.asarray(jax.jit(jax.vmap(walk, axis_name="data"))(apart))
    assert most[:, 200:].max() <= 1.02 * most[:, 100:200].max()


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_what_comes_out_does_not_depend_on_the_size_of_gradients(size):
    tx: Any = dion2("data", SHARE, decay=DECAY)
    g = drawn(2, 1)[0]
    sized = jax.tree.map(lambda x: np.float32(size) * x, g)
    assert_close(updated(tx, sized)[0], updated(tx, g)[0], 1e-3)
    zero = jax.tree.map(np.zeros_like, g)
    assert not any(np.any(x) for x in jax.tree.leaves(updated(tx, zero)[0]))


@pytest.mark.long
def test_singular_values_come_near_one():
    """Also that of a single row, which rounding takes past its norm, whatever size."""
    rows = np.geomspace(1e-30, 1e30, 64)[:, None, None] * np.linspace(1, 2, 37)
    sizes = np.linalg.norm(_dion2.orthonormal(jnp.asarray(rows, "f4")), axis=2)
    assert np.abs(sizes - 1.11055).max() < 1e-4  # that of 1 / 1.01
    u, _, vt = np.linalg.svd(drawn(1, 1)[0]["w"][0], full_matrices=False)
    x = jnp.asarray(u * np.geomspace(1, 0.01, 6) @ vt)[None]
    for each in (x, x.mT):
        found = np.linalg.svd(np.asarray(_dion2.orthonormal(each))[0])[1]
        assert np.abs(found - 1).max() < 0.13


@pytest.mark.few(2)
@pytest.mark.parametrize("bits", [32, 16, 8])
def test_bytes_traced_stated_and_compiled_are_the_same(bits):
    """One float for each row; then two rows of c and w, and two columns of t."""
    algorithm = "ring" if bits == 32 else "two_shot"
    tx: Any = dion2("data", SHARE, bits=bits, algorithm=algorithm)
    params = {k: jnp.zeros(s) for k, s in SHAPES.items()}
    code = {
        32: compression.identity(),
        16: compression.cast(jnp.bfloat16),
        8: compression.quantize(8),
    }[bits]
    norms, floats = 6 + 4 + 6, 2 * (7 + 9 + 11)
    chunk = jax.ShapeDtypeStruct((-(-floats // 2),), "float32")
    stated = 2 * (4 * norms // 2 + compression.payload_bytes(code, chunk))
    helpers.assert_sends(tx, params, stated)


def test_absent_workers_wait_and_nan_is_forgotten():
    tx: Any = dion2("data", SHARE, decay=DECAY)
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
    out, after = updated(tx, gone, before, weight=jnp.zeros(3))
    assert not any(np.any(x) for x in jax.tree.leaves(out))
    helpers.assert_equal(after.momentum, before.momentum)


@pytest.mark.long
def test_bfloat16_leaves_and_those_without_elements():
    tx: Any = dion2("data", SHARE)
    g = {"e": jnp.zeros((2, 0, 3)), "w": jnp.ones((2, 4, 6), jnp.bfloat16)}
    out, state = jax.vmap(lambda g: tx.update(g, tx.init(g)), axis_name="data")(g)
    assert out["w"].dtype == jnp.bfloat16
    assert state.momentum["w"].dtype == jnp.float32
    assert out["e"].shape == (2, 0, 3)


def test_vectors_go_to_another_optimizer():
    parts: dict[Any, Any] = {
        "matrix": optax.chain(dion2("data"), optax.sgd(0.1)),
        "other": optax.chain(relaxjax.all_reduce("data"), optax.adamw(0.1)),
    }
    tx = optax.partition(parts, lambda tree: {"b": "other", "w": "matrix"})
    params = {"b": jnp.zeros(3), "w": jnp.zeros((4, 3))}
    relaxjax.init(tx, params, emulate(2))
    with pytest.raises(ValueError, match=r"dion2: leaf 'b' is float32\[3\], and not a"):
        relaxjax.init(dion2("data"), params, emulate(2))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"fraction": 0.0}, r"dion2: fraction=0.0 must be in \(0, 1\]"),
        ({"decay": 1.0}, r"dion2: decay=1.0 must be in \[0, 1\)"),
        ({"neuron_decay": 1.5}, r"neuron_decay=1.5 must be in \[0, 1\)"),
        ({"bits": 4}, "dion2: bits=4 must be 32, 16 or 8"),
        ({"bits": 8, "algorithm": "psum"}, "cannot be added before"),
    ],
)
def test_refuses_numbers_that_cannot_be(knobs, message):
    with pytest.raises(ValueError, match=message):
        dion2("data", **knobs)
