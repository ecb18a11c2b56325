"""`all_reduce` by a rule that stands wrong workers: numbers, bits, bytes, refusals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, compression, merges
from tests import helpers
from tests.merges.compiled import merged

WORKERS = 4
RULES = [
    merges.clipped(),
    merges.clipped("all"),
    merges.rda(),
    merges.median(),
    merges.trimmed(1),
    merges.geometric_median(),
    merges.centered_clip(2.0, 3),
    merges.nearest(1, merges.median()),
]
BY_ROWS = RULES[3:]
BY_RANK = [merges.median(), merges.trimmed(1)]
every_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


def gradients(seed: int = 0, dtype: Any = np.float32, workers: int = WORKERS) -> Any:
    """[n, ...]: leaves of sizes that n does not divide, one of them empty."""
    rng = np.random.default_rng(seed)
    shapes = {"w": (5, 3), "b": (7,), "none": (0,), "one": ()}
    tree = {k: rng.normal(size=(workers, *s)) for k, s in shapes.items()}
    return jax.tree.map(lambda x: x.astype(dtype), tree)


def on_mesh(tx: Any, grads: Any, weights: Any = None, names: Any = "data") -> Any:
    """Every worker's updates, on devices."""
    names = (names,) if isinstance(names, str) else names
    sizes = {1: (WORKERS,), 2: (2, WORKERS // 2)}[len(names)]
    devices = np.array(jax.devices()[:WORKERS]).reshape(sizes)
    w = np.ones(WORKERS, np.float32) if weights is None else np.float32(weights)

    def one(g: Any, w: Any) -> Any:
        g, w = jax.tree.map(lambda x: x[0], (g, w))
        extra = {} if weights is None else {"weight": w}
        updates, _ = tx.update(g, tx.init(g), **extra)
        return jax.tree.map(lambda x: x[None], updates)

    mesh = jax.sharding.Mesh(devices, names)
    place = P(names)
    mapped = jax.shard_map(one, mesh=mesh, in_specs=place, out_specs=place)
    return jax.tree.map(np.asarray, jax.jit(mapped)(grads, w))


def equal_to_the_bit(out: Any) -> Any:
    """One worker's, which is every worker's."""
    for x in jax.tree.leaves(out):
        for other in x[1:]:
            assert other.tobytes() == x[0].tobytes()
    return jax.tree.map(lambda x: x[0], out)


@pytest.mark.few(6)
@every_rule
@pytest.mark.parametrize("names", ["data", ("host", "device")], ids=str)
def test_is_the_rule_over_rows(rule, names):
    """One worker weighs more, and one is wrong."""
    grads, weights = gradients(), np.array([1, 3, 1, 2])
    grads["w"][2, 1, 1] = np.inf
    out = equal_to_the_bit(on_mesh(all_reduce(names, op=rule), grads, weights, names))
    helpers.assert_close(out, merged(rule, grads, weights), 1e-6)


@pytest.mark.few(6)
@pytest.mark.parametrize("rule", BY_RANK, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float16])
def test_two_shots_are_the_gathered_ones_to_the_bit(rule, dtype):
    grads = gradients(1, dtype)
    grads["b"][1] = -grads["b"][0]
    grads["b"][2] = 0  # zeros of both signs
    grads["b"][3] = -grads["b"][2]
    out = equal_to_the_bit(on_mesh(all_reduce("data", op=rule), grads))
    for found, rows in zip(
        *map(jax.tree.leaves, (out, merged(rule, grads))), strict=True
    ):
        np.testing.assert_array_equal(found, rows)


@pytest.mark.few(8)
@every_rule
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e30])
def test_one_that_is_not_finite_is_absent(rule, wrong):
    grads = gradients(2)
    tx = all_reduce("data", op=rule)
    present = np.array([1, 1, 0, 1])
    without = on_mesh(tx, grads, present)
    grads["b"][2, 3] = wrong
    assert np.isfinite(without["w"]).all()
    for weights in (present, np.ones(4)):
        found = on_mesh(tx, grads, weights)
        for a, b in zip(*map(jax.tree.leaves, (found, without)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.few(8)
@every_rule
def test_nobody_is_zero_and_nobody_finite_is_nan(rule):
    grads, tx = gradients(3), all_reduce("data", op=rule)
    nobody = on_mesh(tx, grads, np.zeros(4))
    assert not any(np.any(x) for x in jax.tree.leaves(nobody))
    broken = jax.tree.map(lambda x: np.full_like(x, np.nan), grads)
    assert np.isnan(on_mesh(tx, broken)["w"]).all()


@pytest.mark.few(12)
@pytest.mark.parametrize("by", ["leaf", "all"])
@pytest.mark.parametrize("algorithm", ["psum", "ring", "two_shot", "one_shot", "tree"])
def test_equal_norms_give_the_bits_of_the_mean(by, algorithm):
    """The same numbers with other signs."""
    grads = gradients(4)
    signs = np.random.default_rng(0).choice([-1, 1], WORKERS).astype(np.float32)
    signed = {}
    for k, x in grads.items():
        signed[k] = x[:1] * signs.reshape(-1, *(1,) * (x.ndim - 1))
    mean = on_mesh(all_reduce("data", algorithm=algorithm), signed)
    rule = merges.clipped(by)
    out = on_mesh(all_reduce("data", algorithm=algorithm, op=rule), signed)
    for a, b in zip(*map(jax.tree.leaves, (out, mean)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rule", BY_ROWS, ids=repr)
def test_buckets_and_order_change_no_more_than_rounding(rule):
    grads = gradients(5)
    tx = all_reduce("data", op=rule)
    order = ["one", "w", "none", "b"]
    other = all_reduce("data", op=rule, bucket_bytes=16, order=order)
    helpers.assert_close(on_mesh(other, grads), on_mesh(tx, grads), 1e-6)


@pytest.mark.few(8)
@every_rule
def test_types_know_that_results_are_equal(rule):
    tx = all_reduce("data", op=rule)

    def one(g: Any) -> Any:
        g = jax.tree.map(lambda x: x[0], g)
        return tx.update(g, tx.init(g))[0]

    mesh = helpers.mesh_of(WORKERS)
    mapped = jax.shard_map(one, mesh=mesh, in_specs=P("data"), out_specs=P())
    grads = gradients(8)
    helpers.assert_close(jax.jit(mapped)(grads), merged(rule, grads), 1e-6)


def matrix_rows(rule: Any, n: int) -> list[int]:
    """Sizes of the matrices of distances that are added up."""
    return {"centered_clip": [n + 1], "geometric_median": [n], "nearest": [n]}.get(
        rule.name, []
    )


@pytest.mark.few(5)
@pytest.mark.parametrize("rule", BY_ROWS, ids=repr)
def test_bytes_of_two_shots(rule):
    """A chunk of each worker there and back, who counts, and a matrix."""
    params, n = {"w": np.zeros((4, 5), np.float32), "b": np.zeros(3, np.float32)}, 2
    chunk = -(-23 // n)
    matrices = sum(-(-(k**2) // n) for k in matrix_rows(rule, n))
    stated = 2 * (n - 1) * 4 * (chunk + matrices) + 8 * (n - 1) + 4 * (n - 1)
    helpers.assert_sends(all_reduce("data", op=rule), params, stated)


@pytest.mark.parametrize("rule", RULES[:3], ids=repr)
def test_bytes_by_lengths(rule):
    """The mean with weights, and a length of each leaf."""
    params, n = {"w": np.zeros((4, 5), np.float32), "b": np.zeros(3, np.float32)}, 2
    mean = 2 * (n - 1) * 4 * (-(-23 // n))
    stated = mean + 2 * (n - 1) * 4 + (n - 1) * 4 * (len(params) + 1)
    helpers.assert_sends(all_reduce("data", op=rule), params, stated)


CODES = [compression.quantize(8), compression.cast(jnp.bfloat16), compression.qsgd(64)]


@pytest.mark.few(4)
@pytest.mark.parametrize("rule", BY_ROWS, ids=repr)
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_dense_codes_are_decoded_merged_and_encoded(rule, code):
    """Within their error, and without what a wrong worker sends."""
    grads = gradients(6)
    exact = on_mesh(all_reduce("data", op=rule), grads, [1, 1, 1, 0])
    grads["w"][3] = 1e25
    tx = all_reduce("data", op=rule, compressor=code)
    found = equal_to_the_bit(on_mesh(tx, grads))
    helpers.assert_close(
        in_a_row(found), in_a_row(jax.tree.map(lambda x: x[0], exact)), 0.1
    )


def in_a_row(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


@pytest.mark.long
def test_a_code_is_decoded_merged_and_encoded_by_hand():
    """Two workers, a chunk at each, where its own values are as they are."""
    code = compression.quantize(4, block_size=8)
    x = np.random.default_rng(0).normal(size=(2, 16)).astype(np.float32)
    tx = all_reduce("data", op=merges.median(), compressor=code)
    update: Any = jax.vmap(lambda g: tx.update(g, tx.init(g))[0], axis_name="data")

    def merged_at(own: Any, other: Any) -> Any:
        middle = 0.5 * own + 0.5 * compression.roundtrip(code, other)
        return compression.roundtrip(code, middle)

    chunks = merged_at(x[0, :8], x[1, :8]), merged_at(x[1, 8:], x[0, 8:])
    helpers.assert_close(update(x)[0], np.concatenate(chunks), 1e-6)


def test_bytes_of_codes():
    rule, code = merges.median(), compression.quantize(8, block_size=8)
    params, n = {"w": np.zeros(32, np.float32)}, 2
    half = compression.payload_bytes(code, jax.ShapeDtypeStruct((16,), np.float32))
    tx = all_reduce("data", op=rule, compressor=code)
    helpers.assert_sends(tx, params, 2 * (n - 1) * half + 8 * (n - 1))


@pytest.mark.parametrize(
    "code",
    [
        compression.top_k(0.5),
        compression.random_k(0.5),
        compression.error_feedback(compression.sign()),
    ],
    ids=lambda code: f"{code.name} {code.feedback.name}",
)
def test_rules_by_lengths_go_with_every_code(code):
    """What travels is what the mean of scaled contributions would send."""
    grads = gradients(7)
    grads["b"][1] *= 1e6
    rule = merges.clipped()
    tx = all_reduce("data", op=rule, compressor=code)
    lengths = jax.tree.map(
        lambda x: np.linalg.norm(x.reshape(WORKERS, -1), axis=1), grads
    )

    def short(x: Any, lengths: Any) -> Any:
        c = np.sort(lengths)[(WORKERS - 1) // 2]
        s = np.minimum(1, c / np.maximum(lengths, 1e-30)).astype(np.float32)
        return x * s.reshape(-1, *(1,) * (x.ndim - 1))

    scaled = jax.tree.map(short, grads, lengths)
    ones = np.ones(WORKERS)
    mean = on_mesh(all_reduce("data", compressor=code), scaled, ones)
    helpers.assert_close(on_mesh(tx, grads, ones), mean, 1e-5)


@pytest.mark.long
def test_a_wrong_worker_neither_stops_nor_moves_training():
    """A NaN in every step of one of four: `skip_nonfinite` would drop them all."""
    targets = helpers.targets_of(WORKERS)
    wrong = np.where(np.arange(WORKERS)[:, None] == 3, np.nan, targets)
    good = targets[:3].mean(axis=0)
    for rule in RULES:
        tx = optax.chain(all_reduce("data", op=rule), optax.sgd(0.2))
        found = helpers.pulled(tx, wrong, relaxjax.emulate(WORKERS), steps=40)[-1]
        spread = np.ptp(targets[:3], axis=0).max()
        assert np.abs(np.asarray(jax.tree.leaves(found)[0]) - good).max() <= spread


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"algorithm": "ring"}, r"op=median\(\) with algorithm='ring'.*two_shot"),
        ({"compressor": compression.top_k(0.1)}, r"median\(\) with compressor=top_k"),
        ({"compressor": compression.random_k(0.1)}, r"with compressor=random_k"),
        ({"compressor": compression.threshold(1.0, 8)}, r"compressor=threshold"),
        (
            {"compressor": compression.error_feedback(compression.sign())},
            r"with compressor=sign.*feedback makes up",
        ),
        (
            {"axis_name": ("a", "b"), "compressor": compression.sign()},
            r"over \('a', 'b'\): a code would be decoded",
        ),
        ({"op": "mode"}, r"op='mode' is not one of .*relaxjax\.merges"),
    ],
)
def test_refusals_name_the_rule_and_the_remedy(how, words):
    arguments: Any = {"axis_name": "data", "op": merges.median(), **how}
    with pytest.raises(ValueError, match=words):
        all_reduce(**arguments)


@pytest.mark.long
def test_complex_leaves_have_no_order():
    tx = all_reduce("data", op=merges.median())
    grads = {"z": np.ones((2, 3), np.complex64)}
    with pytest.raises(ValueError, match=r"leaf 'z' is complex64, and op=median"):
        jax.vmap(lambda g: tx.update(g, tx.init(g))[0], axis_name="data")(grads)
    tx = all_reduce("data", op=merges.clipped())
    update: Any = jax.vmap(lambda g: tx.update(g, tx.init(g))[0], axis_name="data")
    out = update(grads)
    np.testing.assert_allclose(out["z"], grads["z"])
