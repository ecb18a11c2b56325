"""DeMo against a list of workers with SciPy's cosine transform, and its laws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import fft

import relaxjax
from relaxjax import demo, emulate, wire_bytes
from tests import helpers
from tests.gradients.momentum_checks import compiled, updated
from tests.helpers import mesh_of

SHAPES = {"b": (14,), "c": (2, 3, 7), "s": (), "w": (10, 12)}
CUT = {"b": (1, 14, 1, 7), "c": (6, 7, 6, 7), "s": (1, 1, 1, 1), "w": (10, 12, 5, 6)}
"""Rows, columns, and the sides of a block, for chunk 7."""
K, CHUNK, DECAY = 3, 7, 0.9


def drawn(workers: int, steps: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(workers)
    return [
        {k: rng.normal(size=(workers, *s)).astype("f4") for k, s in SHAPES.items()}
        for _ in range(steps)
    ]


def reference(grads: list[Any], weights: Any) -> Any:
    """The transform of y in each step, and each worker's momentum."""
    workers = range(len(weights[0]))
    m = {k: [np.zeros(cut[:2]) for _ in workers] for k, cut in CUT.items()}
    for g, weight in zip(grads, weights, strict=True):
        found = {}
        for name, (rows, columns, h, w) in CUT.items():
            here = [i for i in workers if weight[i]]
            back = np.zeros((rows, columns))
            for i in here:
                share = len(weight) * weight[i] / weight.sum()
                m[name][i] = DECAY * m[name][i]
                m[name][i] += share * g[name][i].reshape(rows, columns)
            for top in range(0, rows, h):
                for left in range(0, columns, w):
                    block = np.s_[top : top + h, left : left + w]
                    sent = {i: largest(m[name][i][block]) for i in here}
                    for i, t in sent.items():
                        m[name][i][block] -= idct(t)
                    all_sent = np.stack([*sent.values()])
                    count = np.maximum((all_sent != 0).sum(0), 1)
                    y = all_sent.sum(0) / count
                    back[block] = idct(y)
            found[name] = back
        yield found, m


def dct(x: np.ndarray) -> np.ndarray:
    return np.asarray(fft.dctn(x, norm="ortho"))


def idct(x: np.ndarray) -> np.ndarray:
    return np.asarray(fft.idctn(x, norm="ortho"))


def largest(block: np.ndarray) -> np.ndarray:
    c = dct(block)
    least = np.sort(np.abs(c), axis=None)[-min(K, c.size)]
    return np.where(np.abs(c) >= least, c, 0)


@pytest.mark.few(2)
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 9])
def test_equals_a_list_of_workers_over_24_steps(workers):
    """With weights, and a worker that is absent in each seventh step."""
    tx: Any = demo("data", K, chunk=CHUNK, decay=DECAY)
    grads, state = drawn(workers, 24), None
    weights = np.random.default_rng(1).uniform(1, 3, (24, workers)).astype("f4")
    if workers > 1:
        weights[::7, 0] = 0
    steps = zip(grads, weights, reference(grads, weights), strict=True)
    for g, w, (expected, m) in steps:
        out, state = updated(tx, g, state, weight=jnp.asarray(w))
        for k, x in expected.items():
            own = np.asarray(state.momentum[k]).reshape(workers, *x.shape)
            np.testing.assert_allclose(own, np.stack(m[k]), atol=1e-4)
            clear = np.abs(x) > 1e-4
            found = np.asarray(out[k]).reshape(workers, *x.shape)
            assert (found[:, clear] == np.sign(x)[clear]).all()
            assert clear.mean() > 0.7  # cosines cancel exactly, here and there


def test_workers_have_equal_bits_in_every_run_and_in_any_order():
    """Permuted workers: the same but where the sum is nothing but rounding."""
    tx: Any = demo("data", K, chunk=CHUNK, decay=DECAY)
    (g,) = drawn(5, 1)
    out, state = updated(tx, g)
    again, _ = updated(tx, g)
    order = np.array([3, 0, 4, 1, 2])
    other, moved = updated(tx, {k: x[order] for k, x in g.items()})
    for k in SHAPES:
        assert (np.asarray(out[k]) == np.asarray(out[k])[0]).all()
        np.testing.assert_array_equal(out[k], again[k])
        assert (np.asarray(other[k]) == np.asarray(out[k])).mean() > 0.95
        before = np.asarray(state.momentum[k])[order]
        np.testing.assert_allclose(moved.momentum[k], before, atol=1e-6)


def test_what_all_workers_have_in_common_is_their_sign():
    """With all coefficients sent it is the sign of the mean gradient, and M is 0."""
    tx: Any = demo("data", 64, chunk=CHUNK)
    (g,) = drawn(4, 1)
    out, state = updated(tx, g)
    for k in SHAPES:
        np.testing.assert_array_equal(out[k][0], np.sign(g[k].mean(0)))
        assert np.abs(state.momentum[k]).max() < 1e-5


def test_what_is_not_sent_waits():
    """decay=1: M plus all that was sent is the sum of the gradients."""
    tx: Any = demo("data", 1, chunk=CHUNK, decay=1.0)
    grads, state, last = drawn(1, 5), None, None
    for g in grads:
        _, state = updated(tx, g, state)
        m = np.asarray(state.momentum["w"][0])
        if last is not None:
            sent = last + g["w"][0] - m
            for top in (0, 5):
                for left in (0, 6):
                    c = dct(sent[top : top + 5, left : left + 6])
                    assert (np.abs(c) > 1e-4).sum() == 1
        last = m


@pytest.mark.long
@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_what_comes_out_does_not_depend_on_the_size_of_gradients(size):
    tx: Any = demo("data", K, chunk=CHUNK, decay=DECAY)
    (g,) = drawn(2, 1)
    plain, _ = updated(tx, g)
    sized, _ = updated(tx, jax.tree.map(lambda x: np.float32(size) * x, g))
    for k in SHAPES:
        assert (np.asarray(sized[k]) == np.asarray(plain[k])).mean() > 0.95
    zero = jax.tree.map(np.zeros_like, g)
    assert not any(np.any(x) for x in jax.tree.leaves(updated(tx, zero)[0]))


def test_bytes_traced_stated_and_compiled_are_the_same():
    """(n - 1) times four bytes a value, and bits for its place, leaf by leaf."""
    tx: Any = demo("data", K, chunk=CHUNK)
    params = {k: jnp.zeros(s) for k, s in SHAPES.items()}
    stated = 0
    for rows, columns, h, w in CUT.values():
        chosen = min(K, h * w) * (rows // h) * (columns // w)
        stated += 4 * chosen + -(-chosen * max(1, (h * w - 1).bit_length()) // 8)
    assert wire_bytes(tx, params, emulate(3)) == 2 * stated
    assert wire_bytes(tx, params, emulate(1)) == 0
    state = relaxjax.init(tx, params, mesh_of(3))
    step = relaxjax.data_parallel(helpers.step_of(lambda p, b: p, tx), mesh_of(3))
    assert relaxjax.compiled_wire_bytes(step, *state, np.zeros(3)) == 2 * stated


def test_absent_workers_wait_and_nan_is_forgotten():
    tx: Any = demo("data", K, chunk=CHUNK, decay=DECAY)
    g, h = drawn(3, 2)
    _, before = updated(tx, g, weight=jnp.ones(3))
    gone = jax.tree.map(lambda x: np.where(np.arange(3) == 1, np.nan, x.T).T, h)
    out, after = updated(tx, gone, before, weight=jnp.array([1.0, 0.0, 2.0]))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(out))
    for k in SHAPES:
        np.testing.assert_array_equal(after.momentum[k][1], before.momentum[k][1])
        assert (after.momentum[k][0] != before.momentum[k][0]).any() or k == "s"
    out, after = updated(tx, gone, before, weight=jnp.ones(3))
    assert all(np.isnan(x).all() for x in jax.tree.leaves(out))
    helpers.assert_equal(after.momentum, before.momentum)
    out, after = updated(tx, gone, before, weight=jnp.zeros(3))
    assert not any(np.any(x) for x in jax.tree.leaves(out))
    helpers.assert_equal(after.momentum, before.momentum)


@pytest.mark.long
def test_bfloat16_leaves_and_those_without_elements():
    tx: Any = demo("data", K)
    g = {"e": jnp.zeros((2, 0, 3)), "w": jnp.ones((2, 4, 6), jnp.bfloat16)}
    for tree in (g, {"e": g["e"]}, {"e": jnp.zeros((1, 0, 3))}):
        out, state = jax.vmap(lambda g: tx.update(g, tx.init(g)), axis_name="data")(
            tree
        )
        assert out["e"].shape == tree["e"].shape
        assert jax.tree.map(lambda x: x.dtype, out) == jax.tree.map(
            lambda x: x.dtype, tree
        )
        assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(state.momentum))


def test_a_prime_side_is_cut_into_lines():
    tx: Any = demo("data", 1, chunk=8)
    g = {"w": np.ones((1, 11, 8), "f4")}
    state = compiled(tx)[0](g)
    out, state = updated(tx, g, state)
    assert (np.asarray(out["w"]) == 1).all()
    assert np.abs(state.momentum["w"]).max() < 1e-6


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"k": 0}, "demo: k=0 must be a whole number, 1 or more"),
        ({"chunk": 2.5}, "demo: chunk=2.5 must be a whole number, 1 or more"),
        ({"decay": 1.5}, r"demo: decay=1.5 must be in \[0, 1\]"),
    ],
)
def test_refuses_numbers_that_cannot_be(knobs, message):
    with pytest.raises(ValueError, match=message):
        demo("data", **knobs)


@pytest.mark.parametrize("shape", [(6, 4), (4, 5, 3), (5,)])
def test_a_step_without_gradients_after_all_is_sent_goes_nowhere(shape):
    """What rounding leaves of a momentum is nothing; what was not sent waits."""
    rng = np.random.default_rng(0)
    grads = rng.normal(size=(2, *shape)).astype(np.float32)
    grads *= 10.0 ** rng.integers(-30, 30, size=(2, *[1] * len(shape)))
    for k, moves in ((64, False), (1, True)):
        tx = relaxjax.demo("data", k=k)
        step = jax.jit(jax.vmap(tx.update, axis_name="data"))
        state = jax.vmap(tx.init, axis_name="data")(grads)
        _, state = step(grads, state)
        out, _ = step(np.zeros_like(grads), state)
        assert bool(np.any(out)) == moves
