"""PowerSGD against lists of workers, its laws, and what it sends."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import compression, emulate, power_sgd, wire_bytes
from relaxjax.gradients.low_rank._low_rank import (
    low_rank_mean,
    matrices_of,
    most_square,
)
from tests import helpers, sharded
from tests.compiled_text import collectives
from tests.gradients.momentum_checks import updated
from tests.gradients.references import SHAPES, run
from tests.helpers import assert_close, mesh_of

WORKERS = 4
# Tall enough that rank 1 and 2 make them smaller; "b" travels as it is.
LARGE = {"w": (12, 10), "v": (4, 3, 9), "b": (7,)}


def large(workers: int, steps: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        {k: rng.normal(size=(workers, *s)).astype(np.float32) for k, s in LARGE.items()}
        for _ in range(steps)
    ]


def basis(p: np.ndarray) -> np.ndarray:
    """Orthonormal columns, by Gram and Schmidt."""
    columns: list[np.ndarray] = []
    for v in p.T:
        for u in columns * 2:
            v = v - (u @ v) * u
        columns.append(v / np.linalg.norm(v))
    return np.stack(columns, axis=1)


def reference(
    tx: Any, grads: list[Any], workers: int, *, rest: bool = False
) -> list[dict[str, np.ndarray]]:
    """What comes out in each step, from the transformation's own first Q."""
    state = tx.init({k: jnp.zeros(s) for k, s in LARGE.items()})
    cut = {"w": (12, 10), "v": (12, 9)}
    q = {k: np.asarray(state.right[k][0], np.float64) for k in cut}
    e = {k: [np.zeros(cut[k]) for _ in range(workers)] for k in cut}
    outs = []
    for g in grads:
        out = {"b": g["b"].mean(axis=0)}
        for k in cut:
            m = [g[k][i].reshape(cut[k]) + e[k][i] for i in range(workers)]
            before = basis(q[k])
            p = basis(np.mean([x @ q[k] for x in m], axis=0))
            sent = np.mean([x.T @ p for x in m], axis=0)
            e[k] = [x - p @ sent.T for x in m]
            out[k] = (p @ sent.T).reshape(LARGE[k])
            left = [x - x @ before @ before.T for x in m]
            q[k] = np.mean([x.T @ p for x in left], axis=0) if rest else sent
        outs.append(out)
    return outs


def test_the_golden_vector():
    m, q = jnp.diag(jnp.array([2.0, 1.0]))[None], jnp.ones((1, 2, 1))
    expected = (
        [[1.6, 0.4], [0.8, 0.2]],
        [[1.969230769, 0.123076923], [0.246153846, 0.015384615]],
        [[1.998048780, 0.031219512], [0.062439024, 0.000975610]],
    )
    for golden in expected:
        (out,), (q,), *_ = low_rank_mean([m], [q], [], lambda x: (x, x), 1)
        np.testing.assert_allclose(out[0], golden, rtol=1e-5, atol=1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize("workers", [2, 3, 5, 8])
@pytest.mark.parametrize("warm_start", ["matrix", "rest"])
def test_equals_a_list_of_workers_over_20_steps(workers, warm_start):
    tx: Any = power_sgd("data", rank=2, warm_start=warm_start)
    grads = large(workers, 20)
    state = None
    outs = reference(tx, grads, workers, rest=warm_start == "rest")
    # A rest carries the rounding of float32 further from step to step.
    most, steps = {"matrix": (2e-3, 20), "rest": (1e-2, 12)}[warm_start]
    for g, expected in zip(grads[:steps], [*outs][:steps], strict=True):
        out, state = updated(tx, g, state)
        for i in range(workers):
            for k in LARGE:
                assert_close(out[k][i], expected[k].astype(np.float32), most)


def test_is_the_same_as_compressing_the_mean():
    tx: Any = power_sgd("data", rank=2)
    grads = large(WORKERS, 1)[0]
    mean = {k: np.broadcast_to(x.mean(0), x.shape) for k, x in grads.items()}
    each, state = updated(tx, grads)
    of_mean, of_mean_state = updated(tx, mean)
    assert_close(each, of_mean, 1e-5)
    assert_close(state.right, of_mean_state.right, 1e-5)


@pytest.mark.slow
def test_approximation_and_residual_are_the_input():
    tx: Any = power_sgd("data", rank=1)
    state: Any = None
    before = {k: np.zeros((WORKERS, *LARGE[k]), np.float32) for k in ("w", "v")}
    for grads in large(WORKERS, 5):
        out, state = updated(tx, grads, state)
        for k in before:
            given = grads[k] + before[k]
            assert_close(np.asarray(out[k] + state.residual[k]), given, 1e-5)
            before[k] = np.asarray(state.residual[k])
            assert np.abs(before[k]).max() > 0.1
        assert_close(np.asarray(out["b"][0]), grads["b"].mean(0), 1e-6)


def test_the_rest_owes_less_where_the_gradient_stays():
    """Directions that went out are not asked for again: less waits at equal bytes."""
    left = {}
    for warm_start in ("matrix", "rest"):
        tx: Any = power_sgd("data", rank=1, warm_start=warm_start)
        state: Any = None
        slow = large(1, 1)[0]["w"]
        for noise in large(WORKERS, 20, seed=1):
            _, state = updated(tx, {"w": slow + 0.3 * noise["w"]}, state)
        left[warm_start] = np.linalg.norm(state.residual["w"].mean(0))
    assert left["rest"] < 0.95 * left["matrix"]


def test_what_16_bits_round_is_in_the_residual():
    tx: Any = power_sgd("data", rank=2, bits=16, algorithm="two_shot")
    exact: Any = power_sgd("data", rank=2)
    grads = large(WORKERS, 1)[0]
    out, state = updated(tx, grads)
    for k in ("w", "v"):
        given = grads[k].mean(0)
        kept = np.asarray(out[k][0] + state.residual[k].mean(0))
        assert_close(kept, given, 1e-6)
        assert (np.asarray(out[k]) == np.asarray(out[k])[:1]).all()
    of_32, _ = updated(exact, grads)
    for k in LARGE:
        assert_close(np.asarray(out[k]), np.asarray(of_32[k]), 2e-2)
        assert np.abs(np.asarray(out[k] - of_32[k])).max() > 1e-5


def test_16_bits_are_half_the_bytes():
    params = {k: jnp.zeros(s) for k, s in LARGE.items()}
    sent = [
        wire_bytes(power_sgd("data", algorithm="two_shot", bits=b), params, emulate(4))
        for b in (32, 16)
    ]
    assert sent[0] == 2 * sent[1]


def coded_mean(arrays: list[list[np.ndarray]]) -> list[np.ndarray]:
    """A mean over lists of workers, through one flat array of columns of each."""

    def flat(own: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([x.T.ravel() for x in own])

    payloads = [
        jnp.asarray(flat(own), jnp.float32) for own in zip(*arrays, strict=True)
    ]
    code = compression.quantize(8)
    mean = np.mean([compression.roundtrip(code, x) for x in payloads], axis=0)
    ends = np.cumsum([x[0].size for x in arrays])[:-1]
    parts = zip(np.split(mean, ends), arrays, strict=True)
    return [part.reshape(x[0].T.shape).T for part, x in parts]


@pytest.mark.long
def test_codes_equal_a_list_of_workers():
    """In one shot, the mean is that of the decoded codes; their bias is fed back.

    The largest of the next Q is from 4 to 8, so that matrices that share a block of
    codes are in it in units of their own gradients, and not of their squares.
    """
    tx: Any = power_sgd("data", rank=2, bits=8, algorithm="one_shot")
    state: Any = tx.init({k: jnp.zeros(s) for k, s in LARGE.items()})
    cut = {"v": (12, 9), "w": (12, 10)}  # in tree order
    q = {k: np.asarray(state.right[k][0], np.float64) for k in cut}
    shapes = {**LARGE, **cut}
    e = {k: [np.zeros(s) for _ in range(3)] for k, s in shapes.items()}
    state = None
    for g in large(3, 4):
        x = {k: [g[k][i].reshape(e[k][i].shape) + e[k][i] for i in range(3)] for k in e}
        *p, b = coded_mean([*([m @ q[k] for m in x[k]] for k in cut), x["b"]])
        p = dict(zip(cut, map(basis, p), strict=True))
        new = coded_mean([[m.T @ p[k] for m in x[k]] for k in cut])
        q = dict(zip(cut, new, strict=True))
        said = {"b": b, **{k: p[k] @ q[k].T for k in cut}}
        q = {k: x / 2.0 ** (np.frexp(np.abs(x).max())[1] - 3) for k, x in q.items()}
        out, state = updated(tx, g, state)
        for k, s in LARGE.items():
            assert_close(np.asarray(out[k][1]), said[k].reshape(s).astype("f4"), 2e-3)
        e = {k: [m - said[k] for m in x[k]] for k in cut}
        e["b"] = [np.asarray(y).reshape(LARGE["b"]) for y in state.residual["b"]]


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ["auto", "one_shot", "ring"])
def test_what_codes_lose_is_in_the_residual_of_every_leaf(algorithm):
    tx: Any = power_sgd("data", rank=2, bits=8, algorithm=algorithm)
    state: Any = None
    owed = {k: np.zeros(s) for k, s in LARGE.items()}
    for grads in large(WORKERS, 6):
        out, state = updated(tx, grads, state)
        for k in LARGE:
            assert (np.asarray(out[k]) == np.asarray(out[k])[:1]).all()
            given = grads[k].mean(0) + owed[k]
            owed[k] = np.asarray(state.residual[k]).mean(0)
            assert_close(np.asarray(out[k][0]) + owed[k], given.astype("f4"), 1e-5)
            assert np.abs(owed[k]).max() > 1e-4


def test_bytes_of_codes():
    params = {k: jnp.zeros(s) for k, s in LARGE.items()}
    rows = 2 * (12 + 12) + LARGE["b"][0], 2 * (10 + 9)  # P with the vector, and Q
    code = compression.quantize(8)
    chunks = [jax.ShapeDtypeStruct((-(-x // 4),), "float32") for x in rows]
    wanted = sum(2 * 3 * compression.payload_bytes(code, x) for x in chunks)
    assert wire_bytes(power_sgd("data", bits=8), params, emulate(4)) == wanted


@pytest.mark.long
def test_iterations_tend_to_the_best_approximation():
    tx: Any = power_sgd("data", rank=2, iterations=40)
    grads = large(WORKERS, 1)[0]
    out, _ = updated(tx, grads)
    u, s, v = np.linalg.svd(grads["w"].mean(0))
    best = (u[:, :2] * s[:2]) @ v[:2]
    assert_close(np.asarray(out["w"][0]), best, 1e-2)


def test_a_warm_start_tends_there_too():
    """One gradient again and again, without what was lost."""
    tx: Any = power_sgd("data", rank=1)
    grads = large(WORKERS, 1)[0]
    out, state = updated(tx, grads)
    first = out["w"][0]
    for _ in range(300):
        state = state._replace(residual=jax.tree.map(jnp.zeros_like, state.residual))
        out, state = updated(tx, grads, state)
    u, s, v = np.linalg.svd(grads["w"].mean(0))
    best = s[0] * np.outer(u[:, 0], v[0])
    assert_close(np.asarray(out["w"][0]), best, 1e-3)
    assert np.linalg.norm(first - best) > 0.1 * np.linalg.norm(best)


def test_full_rank_is_the_all_reduce():
    tx: Any = power_sgd("data", rank=12, min_compression=0)
    grads = large(WORKERS, 1)[0]
    out, state = updated(tx, grads)
    assert_close(out, updated(relaxjax.all_reduce("data"), grads)[0], 1e-5)
    assert np.abs(state.residual["w"].mean(0)).max() < 1e-4  # of 2.6, by the first Q


def test_weights_make_the_mean_one_over_examples():
    tx: Any = power_sgd("data", rank=12, min_compression=0)
    grads, weight = large(WORKERS, 1)[0], jnp.array([1.0, 0.0, 2.0, 5.0])
    grads["w"][1] = np.nan  # of no example
    grads["v"][1] = np.nan
    grads["b"][1] = np.nan
    out, _ = updated(tx, grads, weight=weight)
    exact, _ = updated(relaxjax.all_reduce("data"), grads, weight=weight)
    assert_close(out, exact, 1e-5)


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ["psum", "ring"])
@pytest.mark.parametrize("iterations", [1, 2])
def test_sends_two_messages_in_each_iteration(algorithm, iterations):
    tx: Any = power_sgd("data", rank=1, algorithm=algorithm, iterations=iterations)
    params = {k: jnp.zeros(s) for k, s in LARGE.items()}
    state = relaxjax.init(tx, params, mesh_of(2))
    step = relaxjax.data_parallel(helpers.step_of(lambda p, b: p, tx), mesh_of(2))
    lowered = step.lower(*state, np.zeros(2))
    kinds = [kind for kind, _ in collectives(helpers.optimized_hlo(lowered))]
    one = {"psum": ["all-reduce"], "ring": ["collective-permute"] * 2}[algorithm]
    assert kinds == one * 2 * iterations
    first, second = 12 + 12 + 7, 10 + 9  # n of both and "b"; m of both
    sent = 4 * 2 * (-(-first // 2) + -(-second // 2))
    if iterations == 1:
        assert wire_bytes(tx, params, mesh_of(2)) == sent
    traced = wire_bytes(tx, params, mesh_of(2))
    assert relaxjax.compiled_wire_bytes(step, *state, np.zeros(2)) == traced


def resnet18() -> dict[str, tuple[int, ...]]:
    """He et al. 2016, as commonly cut for CIFAR-10: 3 x 3 at the start, no pooling."""
    shapes: dict[str, tuple[int, ...]] = {"start": (3, 3, 3, 64)}
    norms, width = [64], 64
    for stage, wide in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name = f"{stage}/{block}"
            shapes[f"{name}/first"] = (3, 3, width, wide)
            shapes[f"{name}/second"] = (3, 3, wide, wide)
            norms += [wide, wide]
            if width != wide:
                shapes[f"{name}/shortcut"] = (1, 1, width, wide)
                norms.append(wide)
            width = wide
    shapes |= {"head/kernel": (512, 10), "head/bias": (10,)}
    for i, wide in enumerate(norms):
        shapes |= {f"norm{i}/scale": (wide,), f"norm{i}/bias": (wide,)}
    return shapes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "published"), [(1, 45_935), (2, 82_260), (4, 154_910), (7, 263_885)]
)
def test_floats_of_a_resnet18_are_the_published_ones(rank, published):
    params = {k: jax.ShapeDtypeStruct(s, jnp.float32) for k, s in resnet18().items()}
    assert sum(x.size for x in params.values()) == 11_173_962
    tx = power_sgd("data", rank=rank, algorithm="ring")
    found = matrices_of(params, rank=rank, min_compression=1.0, as_matrices=most_square)
    second = sum(m.columns * m.rank for m in found if m)
    first = published - second
    sent = wire_bytes(tx, params, emulate(2))  # a ring of two: halves, rounded up
    assert sent == 2 * 4 * (-(-first // 2) + -(-second // 2))


def test_starts_after_some_steps_of_plain_all_reduce():
    params = {k: jnp.zeros(s) for k, s in LARGE.items()}
    tx = optax.chain(power_sgd("data", rank=1, start_after=2), optax.sgd(0.1))
    plain = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))
    mesh = emulate(WORKERS)
    sent = [wire_bytes(tx, params, mesh, start=step) for step in range(4)]
    whole = wire_bytes(relaxjax.all_reduce("data"), params, mesh)
    assert sent[:2] == [whole] * 2
    assert sent[2] == sent[3] < whole / 2
    grads = large(WORKERS, 3)
    start = {k: np.zeros(s, np.float32) for k, s in LARGE.items()}
    ours, theirs = (run(t, grads[:2], WORKERS, start) for t in (tx, plain))
    assert_close(ours, theirs, 1e-6)
    ours, theirs = (run(t, grads, WORKERS, start) for t in (tx, plain))
    assert np.abs(ours["w"] - theirs["w"]).max() > 1e-3


def test_layers_that_are_stacked_are_a_batch():
    shape = (3, 8, 8)
    rng = np.random.default_rng(0)
    pairs = rng.normal(size=(3, 8)), rng.normal(size=(3, 8))
    each = np.einsum("bi,bj->bij", *pairs).astype(np.float32)  # each of rank 1
    grads = {"w": np.stack([each, 3 * each])}
    one: Any = power_sgd("data", rank=1, as_matrices=lambda name, shape: (3, 8, 8))
    out, state = updated(one, grads)
    assert_close(np.asarray(out["w"][0]), 2 * each, 1e-5)
    assert state.right["w"].shape == (2, 3, 8, 1)
    whole: Any = power_sgd("data", rank=1)  # as one matrix of 24 x 8
    out, _ = updated(whole, grads)
    assert np.abs(out["w"][0] - 2 * each).max() > 0.1
    assert most_square("", shape) == (1, 24, 8)


DEFICIENT = {
    "zero": np.zeros((12, 10)),
    "one of rank 1": np.outer(np.arange(12.0), np.ones(10)),
    "rows of zeros": np.eye(12, 10) * (np.arange(12) % 3 == 0)[:, None],
    "huge": 1e18 * np.ones((12, 10)),
    "tiny": 1e-38 * np.ones((12, 10)),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("kind", DEFICIENT)
@pytest.mark.parametrize("warm_start", ["matrix", "rest"])
def test_stays_finite_and_recovers(kind, dtype, warm_start):
    tx: Any = power_sgd("data", rank=3, warm_start=warm_start)
    value = np.broadcast_to(DEFICIENT[kind], (2, 12, 10))
    grads = {"w": jnp.asarray(value).astype(dtype)}
    out: Any = None
    state: Any = None
    for _ in range(4):
        out, state = updated(tx, grads, state)
        if not (kind == "huge" and dtype == jnp.float16):  # it is infinite there
            assert np.isfinite(np.asarray(out["w"], np.float32)).all()
            assert np.isfinite(state.residual["w"]).all()
            assert np.isfinite(state.right["w"]).all()
    if kind == "zero":
        assert not np.asarray(out["w"], np.float32).any()
        again = large(2, 1)[0]
        grads = {"w": jnp.asarray(again["w"]).astype(dtype)}
        for _ in range(3):
            out, state = updated(tx, grads, state)
        assert np.abs(np.asarray(out["w"], np.float32)).max() > 0.1


def test_a_nan_on_one_worker_shows_on_all():
    grads = large(WORKERS, 1)[0]
    grads["w"][2, 0, 0] = np.nan
    out, _ = updated(power_sgd("data", rank=1), grads)
    assert np.isnan(out["w"]).any(axis=(1, 2)).all()


def test_one_worker_sends_and_loses_nothing():
    tx: Any = power_sgd("data", rank=1)
    grads = large(1, 1)[0]
    out, state = updated(tx, grads)
    assert_close(out, grads, 1e-6)
    assert not state.residual["w"].any()
    params = {k: jnp.zeros(s) for k, s in LARGE.items()}
    assert wire_bytes(tx, params, emulate(1)) == 0


@pytest.mark.slow
def test_beside_tensor_parallelism_each_shard_has_its_own():
    mesh = sharded.mesh_of(4, 2)
    params = {"w": jnp.ones((12, 10)), "v": jnp.ones((20, 6)), "b": jnp.ones(4)}
    specs = {"w": P(None, "model"), "v": P("model"), "b": P()}
    tx: Any = power_sgd("data", rank=1, specs=specs)
    rng = np.random.default_rng(0)
    grads = {
        k: rng.normal(size=(4, *x.shape)).astype(np.float32) for k, x in params.items()
    }

    def step(opt_state, batch):
        updates, opt_state = tx.update(jax.tree.map(lambda x: x[0], batch), opt_state)
        return opt_state, updates

    placed = {
        k: jax.device_put(x, jax.sharding.NamedSharding(mesh, specs[k]))
        for k, x in params.items()
    }
    _, state = relaxjax.init(tx, placed, mesh, axis_name="data")
    assert state.right["w"].shape == (4, 2, 5, 1)
    assert state.right["v"].shape == (4, 2, 6, 1)
    run = relaxjax.data_parallel(step, mesh, axis_name="data")
    hlo = helpers.optimized_hlo(run.lower(state, grads))
    for _, groups in collectives(hlo):  # device = 2 * (index on data) + model's
        assert all(len({d % 2 for d in group}) == 1 for group in groups)
    right = jax.tree.map(np.asarray, state.right)
    state, out = run(state, grads)
    for k, cut in {"w": (slice(None), slice(5)), "v": (slice(10),)}.items():
        shard = np.stack([g[cut] for g in grads[k]])  # the first device's
        alone: Any = power_sgd("data", rank=1)
        first = alone.init({k: jnp.zeros(shard.shape[1:])})
        first = first._replace(right={k: jnp.asarray(right[k][0, :1])})
        stacked = jax.tree.map(lambda x: jnp.stack([x] * 4), first)
        expected, _ = updated(alone, {k: shard}, stacked)
        assert_close(np.asarray(out[k])[cut], np.asarray(expected[k][0]), 1e-5)
    per_device = 12 + 10 + 4, 5 + 6  # n of both and "b"; m of both
    ring = power_sgd("data", rank=1, specs=specs, algorithm="ring")
    sent = wire_bytes(ring, params, mesh, axis_name="data")
    assert sent == sum(2 * 3 * -(-size // 4) * 4 for size in per_device)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"bits": 12}, "bits=12 must be 32, 16 or 8"),
        ({"bits": 8, "algorithm": "psum"}, "quantize8 cannot be added before"),
        ({"bits": 8, "algorithm": "tree"}, "algorithm='tree' carries no compressor"),
        ({"rank": 0}, "rank=0 must be a whole number, 1 or more"),
        ({"rank": 1.5}, "rank=1.5 must be a whole number"),
        ({"iterations": 0}, "iterations=0 must be a whole number, 1 or more"),
        ({"warm_start": "Q"}, "warm_start='Q' is not one of matrix, rest: the Q"),
        ({"start_after": -1}, "start_after=-1 must be a whole number, 0 or more"),
        ({"min_compression": -1}, "min_compression=-1 must be a finite factor"),
        ({"algorithm": "rings"}, "algorithm='rings' is not one of"),
    ],
)
def test_refuses_numbers_that_cannot_be(knobs, message):
    with pytest.raises(ValueError, match=message):
        power_sgd("data", **knobs)


@pytest.mark.parametrize(
    ("params", "rank", "message"),
    [
        ({"b": (3,), "scale": ()}, 1, r"compresses none of the leaves .*\(3,\)"),
        (SHAPES, 6, r"rank=6 compresses none of the leaves .* Lower the rank"),
    ],
)
def test_refuses_models_that_would_not_be_compressed(params, rank, message):
    zeros = {k: jnp.zeros(s) for k, s in params.items()}
    with pytest.raises(ValueError, match=message):
        relaxjax.init(power_sgd("data", rank=rank), zeros, emulate(2))


def test_refuses_matrices_that_do_not_fit_and_integers():
    tx = power_sgd("data", as_matrices=lambda name, shape: (1, 2, 2))
    with pytest.raises(ValueError, match=r"1 matrices of 2 x 2 of leaf 'w'"):
        relaxjax.init(tx, {"w": jnp.zeros((9, 9))}, emulate(2))
    with pytest.raises(ValueError, match="power_sgd: leaf 'w' is int32"):
        relaxjax.init(power_sgd("data"), {"w": jnp.zeros((9, 9), int)}, emulate(2))
