"""ACP-SGD against lists of workers, its laws, and what it sends."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relaxjax
from relaxjax import acp_sgd, compression, emulate, wire_bytes
from relaxjax.gradients.low_rank._low_rank import Matrices
from relaxjax.gradients.low_rank._low_rank_sides import views_of
from tests import helpers
from tests.compiled_text import collectives
from tests.gradients.low_rank.test_power_sgd import basis
from tests.gradients.momentum_checks import updated
from tests.helpers import assert_close, mesh_of

# P of "w" is its rows, P of "v" its columns; "b" travels as it is.
SHAPES = {"b": (7,), "v": (4, 3, 9), "w": (14, 10)}
CUT = {"v": (12, 9), "w": (14, 10)}
FLIPPED = {"v": True, "w": False}


def drawn(workers: int, steps: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        {
            k: rng.normal(size=(workers, *s)).astype(np.float32)
            for k, s in SHAPES.items()
        }
        for _ in range(steps)
    ]


def reference(tx: Any, grads: list[Any], weights: Any) -> Any:
    """What comes out in each step, and the residuals, from the first P and Q."""
    state = tx.init({k: jnp.zeros(s) for k, s in SHAPES.items()})
    p = {k: np.asarray(state.left[k][0], np.float64) for k in CUT}
    q = {k: np.asarray(state.right[k][0], np.float64) for k in CUT}
    workers = range(len(weights[0]))
    e = {k: [np.zeros(CUT[k]) for _ in workers] for k in CUT}
    for step, (g, weight) in enumerate(zip(grads, weights, strict=True)):
        share = len(weight) * weight / weight.sum()
        out = {"b": np.mean([share[i] * g["b"][i] for i in workers], axis=0)}
        for k, cut in CUT.items():
            m = [
                share[i] * g[k][i].reshape(cut) + e[k][i] if weight[i] else 0 * e[k][i]
                for i in workers
            ]
            turned = [x.T for x in m] if FLIPPED[k] else m
            if step % 2 == 0:
                known = basis(q[k])
                own = [x @ known for x in turned]
                p[k] = np.mean(own, axis=0)
                outs, sent = p[k] @ known.T, [x @ known.T for x in own]
            else:
                known = basis(p[k])
                own = [x.T @ known for x in turned]
                q[k] = np.mean(own, axis=0)
                outs, sent = known @ q[k].T, [known @ x.T for x in own]
            if FLIPPED[k]:
                outs, sent = outs.T, [x.T for x in sent]
            e[k] = [
                m[i] - sent[i] if weight[i] else e[k][i] for i in range(len(weight))
            ]
            out[k] = outs.reshape(SHAPES[k])
        yield out, e


@pytest.mark.few(1)
@pytest.mark.parametrize("workers", [2, 3, 5, 9])
def test_equals_a_list_of_workers_over_24_steps(workers):
    """With weights, and a worker that is absent in each seventh step."""
    tx: Any = acp_sgd("data", rank=2)
    grads, state = drawn(workers, 24), None
    weights = np.random.default_rng(1).uniform(1, 3, (24, workers)).astype(np.float32)
    weights[::7, 0] = 0
    steps = zip(grads, weights, reference(tx, grads, weights), strict=True)
    for g, w, (expected, e) in steps:
        out, state = updated(tx, g, state, weight=jnp.asarray(w))
        for k, x in expected.items():
            for i in range(workers):
                assert_close(out[k][i], x.astype(np.float32), 2e-3)
        for k, cut in CUT.items():
            own = np.asarray(state.residual[k]).reshape(workers, *cut)
            assert_close(own, np.stack(e[k]).astype(np.float32), 5e-3)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("bits", "algorithm"),
    [(32, "psum"), (16, "two_shot"), (8, "two_shot"), (8, "one_shot"), (8, "ring")],
)
def test_what_comes_out_and_what_waits_is_what_was_given(bits, algorithm):
    """In each step, absent workers included: mean(e) + out = mean(g + e before)."""
    tx: Any = acp_sgd("data", rank=2, bits=bits, algorithm=algorithm)
    state: Any = None
    owed = {k: np.zeros(s) for k, s in SHAPES.items()}
    for step, grads in enumerate(drawn(4, 7)):
        weight = np.array([1.0, 1.0, 1.0, step % 3 != 2])
        relative = 4 * weight / weight.sum()
        out, state = updated(tx, grads, state, weight=jnp.asarray(weight))
        for k in SHAPES if bits < 32 else CUT:
            assert (np.asarray(out[k]) == np.asarray(out[k])[:1]).all()
            came = np.einsum("i,i...->...", relative, grads[k]) / 4
            given_now = came + owed[k]
            owed[k] = np.asarray(state.residual[k], np.float64).mean(0)
            if step % 3 == 2:  # an absent worker's e waits, and is not in `out`
                assert weight[3] == 0
            assert_close(np.asarray(out[k][0]) + owed[k], given_now, 2e-5)


@pytest.mark.long
def test_two_turns_are_one_iteration_of_power_sgd():
    """Of one matrix again and again, without feedback: span(Q) is the same."""
    x = drawn(3, 1)[0]["w"]
    acp: Any = acp_sgd("data", rank=2)
    power: Any = relaxjax.power_sgd("data", rank=2)
    grads = {"w": x}
    mine, theirs = (jax.vmap(tx.init)(grads) for tx in (acp, power))
    theirs = theirs._replace(right=mine.right)
    for _ in range(3):
        zeros = jax.tree.map(jnp.zeros_like, mine.residual)
        _, mine = updated(acp, grads, mine._replace(residual=zeros))
        out, mine = updated(acp, grads, mine._replace(residual=zeros))
        expected, theirs = updated(power, grads, theirs._replace(residual=zeros))
        assert_close(out, expected, 1e-4)


def test_full_rank_is_the_all_reduce():
    """Of square matrices in both turns, of others where the known side is the shorter.

    Of n < m rows, P^ spans all of R^n, and n columns of Q^ do not span R^m.
    """
    tx: Any = acp_sgd("data", rank=14, min_compression=0)
    rng, state = np.random.default_rng(0), None
    for step in range(4):
        shapes = {"square": (4, 9, 9), "tall": (4, 14, 10)}
        grads = {k: rng.normal(size=s).astype("f4") for k, s in shapes.items()}
        owed = None if state is None else state.residual
        out, state = updated(tx, grads, state)
        assert_close(np.asarray(out["square"][0]), grads["square"].mean(0), 1e-5)
        if step % 2 == 0:
            before = 0.0 if owed is None else np.asarray(owed["tall"]).mean(0)
            mean = (grads["tall"].mean(0) + before).astype("f4")
            assert_close(np.asarray(out["tall"][0]), mean, 1e-5)
            assert np.abs(state.residual["tall"]).max() < 1e-5
        else:
            assert np.abs(state.residual["tall"]).max() > 0.1


@pytest.mark.few(2)
@pytest.mark.parametrize("bits", [32, 16, 8])
def test_bytes_traced_stated_and_compiled_are_the_same(bits):
    """One message, as long in each turn: the larger of both, and vectors."""
    algorithm = "ring" if bits == 32 else "two_shot"
    tx: Any = acp_sgd("data", rank=2, bits=bits, algorithm=algorithm)
    params = {k: jnp.zeros(s) for k, s in SHAPES.items()}
    floats = max(2 * (14 + 9), 2 * (10 + 12)) + 7
    chunk = jax.ShapeDtypeStruct((-(-floats // 2),), "float32")
    code = {
        32: compression.identity(),
        16: compression.cast(jnp.bfloat16),
        8: compression.quantize(8),
    }[bits]
    stated = 2 * compression.payload_bytes(code, chunk)
    assert [
        wire_bytes(tx, params, emulate(2), start=step) for step in range(3)
    ] == 3 * [stated]
    state = relaxjax.init(tx, params, mesh_of(2))
    step = relaxjax.data_parallel(helpers.step_of(lambda p, b: p, tx), mesh_of(2))
    assert relaxjax.compiled_wire_bytes(step, *state, np.zeros(2)) == stated
    if bits == 32:
        hlo = helpers.optimized_hlo(step.lower(*state, np.zeros(2)))
        assert [kind for kind, _ in collectives(hlo)] == ["collective-permute"] * 2


@pytest.mark.slow
def test_the_mesh_and_the_emulation_agree():
    tx: Any = acp_sgd("data", rank=2, bits=8)
    params = {k: jnp.zeros(s) for k, s in SHAPES.items()}

    def step(state: Any, batch: Any) -> Any:
        out, state = tx.update(jax.tree.map(lambda x: x[0], batch), state)
        return state, out

    ends = []
    for mesh in (mesh_of(3), emulate(3)):
        _, state = relaxjax.init(tx, params, mesh)
        run = relaxjax.data_parallel(step, mesh)
        for grads in drawn(3, 4):
            state, _ = run(state, grads)
        ends.append(state.residual)
    assert_close(ends[0], ends[1], 1e-4)


SIDES = st.tuples(st.integers(1, 3), st.integers(1, 60), st.integers(1, 60))


@given(st.lists(SIDES, min_size=1, max_size=9))
@settings(deadline=None, max_examples=200)
def test_turns_differ_by_one_leaf_at_most(shapes):
    leaves = [Matrices(b, n, m, min(2, n, m)) for b, n, m in shapes]
    views = [v for v in views_of([None, *leaves]) if v]
    assert len(views) == len(leaves)
    floats = [[v.floats(k) for v in views] for k in (0, 1)]
    most = max(abs(a - b) for a, b in zip(*floats, strict=True))
    assert abs(sum(floats[0]) - sum(floats[1])) <= most


def test_views_go_there_and_back():
    x = jnp.arange(2.0 * 5 * 3).reshape(10, 3)
    for view in views_of([Matrices(2, 5, 3, 1), Matrices(2, 5, 3, 1)]):
        assert view is not None
        assert view.of(x).shape == (2, *view.sides)
        np.testing.assert_array_equal(view.back(view.of(x), x.shape), x)
    a, b = views_of([Matrices(2, 5, 3, 1), Matrices(2, 5, 3, 1)])
    assert a is not None
    assert b is not None
    assert a.sides == b.sides[::-1]


def test_bfloat16_leaves_come_out_in_it():
    grads = {k: jnp.asarray(x, jnp.bfloat16) for k, x in drawn(2, 1)[0].items()}
    out, state = updated(acp_sgd("data", rank=2), grads)
    assert {x.dtype for x in out.values()} == {jnp.dtype(jnp.bfloat16)}
    assert state.residual["w"].dtype == jnp.float32


def test_a_nan_on_one_worker_shows_on_all():
    grads = drawn(4, 1)[0]
    grads["w"][2, 0, 0] = np.nan
    out, state = updated(acp_sgd("data", rank=1), grads)
    assert np.isnan(out["w"]).any(axis=(1, 2)).all()
    assert not np.asarray(state.residual["w"]).any()


def test_one_worker_sends_and_loses_nothing():
    tx: Any = acp_sgd("data", rank=1)
    grads = drawn(1, 1)[0]
    out, state = updated(tx, grads)
    assert_close(out, grads, 1e-6)
    assert not state.residual["w"].any()


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"bits": 4}, "acp_sgd: bits=4 must be 32, 16 or 8"),
        ({"bits": 16, "algorithm": "psum"}, "cast_bfloat16 cannot be added before"),
        ({"rank": 0}, "acp_sgd: rank=0 must be a whole number, 1 or more"),
        ({"min_compression": -1}, "acp_sgd: min_compression=-1 must be a finite"),
    ],
)
def test_refuses_numbers_that_cannot_be(knobs, message):
    with pytest.raises(ValueError, match=message):
        acp_sgd("data", **knobs)


def test_refuses_models_that_would_not_be_compressed():
    with pytest.raises(ValueError, match="acp_sgd: rank=4 compresses none"):
        relaxjax.init(acp_sgd("data"), {"w": jnp.zeros((3, 3))}, emulate(2))
