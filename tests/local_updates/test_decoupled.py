"""Decoupled DiLoCo against a list of islands, and the laws of its merges."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate
from tests import helpers
from tests.helpers import assert_equal, mesh_of

RATE, ETA, MU, STEPS = 0.1, 0.7, 0.9, 24
SHAPES = {"a": (3, 5), "b": (7,), "c": ()}
FRAGMENT = {"a": 0, "b": 1, "c": 1}


def merged(rule: str, d: np.ndarray, w: np.ndarray) -> np.ndarray:
    """One tensor of all workers, of weights that are not all zero."""
    d, w = d[w > 0], w[w > 0] / w.sum()
    mean = np.tensordot(w, d, 1)
    if rule == "mean":
        return mean
    lengths = np.array([np.linalg.norm(x) for x in d])
    apart = [x / r if r else x for x, r in zip(d, lengths, strict=True)]
    direction = np.tensordot(w, np.stack(apart), 1)
    own = np.linalg.norm(direction)
    return np.zeros_like(direction) if own < 1e-6 else w @ lengths * direction / own


class Islands:
    """Islands in lists, a syncer in a dict; SGD inside, Nesterov outside."""

    def __init__(self, targets: dict[str, np.ndarray], rule: str):
        self.targets, self.rule, self.n = targets, rule, len(targets["c"])
        self.x = {k: np.zeros_like(v) for k, v in targets.items()}
        self.a = {k: np.zeros(s) for k, s in SHAPES.items()}
        self.v = {k: np.zeros(s) for k, s in SHAPES.items()}
        self.tokens, self.steps = np.zeros((2, self.n)), np.zeros((2, self.n))

    def step(self, tokens: np.ndarray) -> None:
        for i in range(self.n):
            for k in SHAPES if tokens[i] else ():
                self.x[k][i] -= RATE * (self.x[k][i] - self.targets[k][i])
        self.tokens, self.steps = self.tokens + tokens, self.steps + (tokens > 0)

    def read(self, part: int, present: np.ndarray) -> Any:
        names = [k for k in SHAPES if FRAGMENT[k] == part]
        c, s = self.tokens[part], self.steps[part]
        w = np.where(present, c**2 / np.maximum(s, 1), 0)
        return w, {k: self.a[k] - self.x[k] for k in names}

    def merge(self, part: int, read: Any, adopts: np.ndarray) -> None:
        w, gradients = read
        if not w.any():
            return
        for k, d in gradients.items():
            mean = merged(self.rule, d, w)
            self.v[k] = MU * self.v[k] + mean
            self.a[k] = self.a[k] - ETA * (mean + MU * self.v[k])
            self.x[k][adopts > 0] = self.a[k]
        self.tokens[part] *= adopts == 0
        self.steps[part] *= adopts == 0


def reference(targets, rule, every, overlap, present, adopts, tokens) -> list[Any]:
    """Models after each step; two fragments."""
    islands, under_way, seen, merges = Islands(targets, rule), {}, [], 0
    for t in range(1, STEPS + 1):
        islands.step(tokens[(t - 1) % len(tokens)])
        if t % every == 0:
            row = merges % len(present)
            read = islands.read(merges % 2, present[row])
            under_way[t + overlap] = merges % 2, read, adopts[row]
            merges += 1
        if t in under_way:
            islands.merge(*under_way[t])
        seen.append({k: x.copy() for k, x in islands.x.items()})
    return seen


def targets_of(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    return {k: rng.normal(size=(n, *s)) for k, s in SHAPES.items()}


def decoupled(**how: Any) -> Any:
    how = {"sync_every": 4, "fragments": 2, "fragment_of": FRAGMENT.__getitem__, **how}
    return relaxjax.decoupled_diloco(how.pop("inner", optax.sgd(RATE)), "data", **how)


def history(tx: Any, targets: Any, mesh: Any, dtype: Any = np.float32) -> list[Any]:
    def gradient(x, batch):
        return jax.tree.map(lambda x, t: x - t[0].astype(x.dtype), x, batch)

    start = {k: jnp.zeros(s, dtype) for k, s in SHAPES.items()}
    data = [jax.tree.map(np.float32, targets)] * STEPS
    return helpers.history(tx, gradient, start, data, mesh)


def tables(n: int) -> dict[str, np.ndarray]:
    """Merges without anybody and with one alone; workers without tokens for long."""
    rng = np.random.default_rng(100 + n)
    present = rng.integers(0, 2, (7, n))
    present[2], present[4] = 0, np.arange(n) == n - 1
    tokens = rng.integers(0, 4, (11, n)) * 128
    tokens[:6, 0] = 0
    return {
        "present": present,
        "adopts": np.maximum(present, rng.integers(0, 2, (7, n))),
        "tokens": tokens,
    }


@pytest.mark.few(2)
@pytest.mark.parametrize("n", range(2, 10))
@pytest.mark.parametrize("overlap", [0, 3])
@pytest.mark.parametrize("rule", ["mean", "rda"])
def test_equals_a_list_of_islands(n, overlap, rule):
    how = tables(n)
    tx = decoupled(merge=rule, overlap=overlap, **how)
    expected = reference(targets_of(n), rule, 2, overlap, **how)
    for mesh in [emulate(n)] + [mesh_of(n)] * (n in (3, 8)):
        found = history(tx, targets_of(n), mesh)
        for (x, _), ref in zip(found, expected, strict=True):
            jax.tree.map(
                lambda x, r: np.testing.assert_allclose(x, r, atol=1e-5), x, ref
            )


def test_equals_a_list_of_islands_in_bfloat16():
    """To the rounding of the params: the anchor is in float32."""
    how = tables(5)
    expected = reference(targets_of(5), "rda", 2, 1, **how)
    tx = decoupled(overlap=1, **how)
    found = history(tx, targets_of(5), emulate(5), jnp.bfloat16)
    for (x, _), ref in zip(found, expected, strict=True):
        for k in SHAPES:
            np.testing.assert_allclose(np.float32(x[k]), ref[k], atol=0.05)


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("where", [emulate, mesh_of])
@pytest.mark.parametrize("rule", ["mean", "rda"])
@pytest.mark.parametrize(
    ("how", "exact"),
    [
        ({}, True),
        ({"present": [[1] * 4], "adopts": [[1] * 4]}, True),
        ({"tokens": [[64] * 4]}, False),
    ],
    ids=["as it is", "tables of ones", "equal tokens"],
)
def test_all_present_in_one_fragment_is_diloco(where, rule, how, exact):
    """To the bit; to rounding where equal tokens are weights of a mean."""
    whole = {"fragments": 1, "fragment_of": None}
    tx = decoupled(sync_every=3, merge=rule, **whole, **how)
    same = relaxjax.diloco(optax.sgd(RATE), "data", 3, merge=rule)
    ways = [history(t, targets_of(4), where(4)) for t in (tx, same)]
    for (x, _), (y, _) in zip(*ways, strict=True):
        if exact:
            assert_equal(x, y)
        else:
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), x, y)


def test_fragments_without_overlap_are_those_of_streaming_diloco():
    same = relaxjax.streaming_diloco(
        optax.sgd(RATE), "data", 4, fragment_of=FRAGMENT.__getitem__
    )
    ways = [
        history(t, targets_of(4), emulate(4)) for t in (decoupled(merge="mean"), same)
    ]
    for (x, _), (y, _) in zip(*ways, strict=True):
        assert_equal(x, y)


def outer_half(state: Any) -> Any:
    return state[1]


def one_merge(vectors: Any, rule: str, **how: Any) -> tuple[np.ndarray, Any]:
    """Models after a single step along each worker's vector, and the anchor."""
    tx = relaxjax.decoupled_diloco(
        optax.sgd(1.0),
        "data",
        sync_every=1,
        fragments=1,
        outer=optax.sgd(1.0),
        merge=rule,
        **how,
    )

    def run(g):
        u, state = tx.update(g, tx.init(jnp.zeros_like(g)), jnp.zeros_like(g))
        return u, outer_half(state).kept[0].anchor

    return jax.jit(jax.vmap(run, axis_name="data"))(jnp.asarray(vectors, jnp.float32))


@pytest.mark.long
@pytest.mark.parametrize("how", [{}, {"tokens": [[8, 1, 5]]}], ids=["equal", "tokens"])
@pytest.mark.parametrize("rule", ["mean", "rda"])
def test_merges_of_equal_and_of_zero_vectors(rule, how):
    d = np.array([3.0, -4.0, 12.0])
    found, _ = one_merge([d] * 3, rule, **how)
    np.testing.assert_allclose(found, [-d] * 3, rtol=1e-6)
    found, _ = one_merge(np.zeros((3, 4)), rule, **how)
    np.testing.assert_array_equal(found, np.zeros((3, 4)))


def test_directions_that_cancel_take_no_step():
    d = np.array([3.0, -4.0, 0.0])
    for vectors in ([d, -d], [d, -2 * d], [d, 0 * d]):
        assert np.isfinite(one_merge(vectors, "rda")[0]).all()
    np.testing.assert_array_equal(one_merge([d, -2 * d], "rda")[0], np.zeros((2, 3)))


@pytest.mark.long
def test_directions_that_cancel_but_for_rounding_take_no_step():
    """A step of full length would otherwise go along the rounding of a sum."""
    for seed in range(20):
        d = np.random.default_rng(seed).normal(size=7)
        found, _ = one_merge(
            [d, 3 * d, -2 * d], "rda", tokens=[[3, 4, 5]]
        )  # 9 + 16 = 25
        np.testing.assert_array_equal(found, np.zeros((3, 7)))


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 4, 16])
def test_the_length_does_not_depend_on_the_number_of_workers(n):
    """Orthogonal vectors of length 2; their mean is 2 / sqrt(n) long."""
    vectors = 2 * np.eye(n)
    for rule, length in (("mean", 2 / np.sqrt(n)), ("rda", 2)):
        found = np.linalg.norm(one_merge(vectors, rule)[0], axis=1)
        np.testing.assert_allclose(found, length, rtol=1e-6)


@pytest.mark.few(4)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("rule", ["mean", "rda"])
@pytest.mark.parametrize(
    "how", [{"present": [[1, 1, 0]]}, {"tokens": [[1, 1, 0]]}], ids=["absent", "still"]
)
def test_what_an_absent_worker_holds_stays_out(how, rule, bad):
    vectors = np.array([[1.0, 2.0], [1.0, 2.0], [bad, bad]])
    found, anchor = one_merge(vectors, rule, **how)
    np.testing.assert_allclose(anchor, [[-1, -2]] * 3, rtol=1e-6)
    np.testing.assert_allclose(found[:2], [[-1, -2]] * 2, rtol=1e-6)


@pytest.mark.long
def test_an_absent_worker_loses_nothing():
    """It goes on from its own model, and all it did since is in its next merge."""
    tx = decoupled(
        inner=optax.sgd(1.0),
        sync_every=1,
        fragments=1,
        fragment_of=None,
        merge="mean",
        outer=optax.sgd(1.0),
        present=[[1, 0], [1, 0], [0, 1]],
    )

    def run(g):
        x, state, seen = jnp.zeros(()), tx.init(jnp.zeros(())), []
        for _ in range(3):
            u, state = tx.update(g, state, x)
            x = x + u
            half = outer_half(state)
            seen.append(jnp.stack([x, half.kept[0].anchor, half.steps[0]]))
        return jnp.stack(seen)

    first, second = jax.vmap(run, axis_name="data")(jnp.array([-1.0, -10.0]))
    np.testing.assert_array_equal(first, [[1, 1, 0], [2, 2, 0], [3, 30, 1]])
    np.testing.assert_array_equal(second, [[10, 1, 1], [20, 2, 2], [30, 30, 0]])


@pytest.mark.few(2)
@pytest.mark.parametrize("rule", ["mean", "rda"])
def test_the_common_part_is_equal_to_the_bit(rule):
    """On every worker and at all times, and so are models where all adopt."""
    how = tables(5) | {"adopts": np.ones((7, 5), int)}
    tx = decoupled(merge=rule, overlap=1, **how)
    for mesh in (emulate(5), mesh_of(5)):
        for _, state in history(tx, targets_of(5), mesh):
            for x in jax.tree.leaves(state[1].kept):
                assert_equal(x, np.stack([x[0]] * 5))


@pytest.mark.long
def test_presence_by_chance_repeats_itself_and_differs_by_seed():
    def way(seed: int) -> Any:
        tx = decoupled(present=0.5, seed=seed)
        return history(tx, targets_of(4), emulate(4))[-1][0]

    assert_equal(way(1), way(1))
    assert not np.array_equal(way(1)["a"], way(2)["a"])


@pytest.mark.long
def test_codes_with_feedback_reach_the_same_model():
    code = compression.error_feedback(compression.quantize(8))
    plain, coded = (
        history(decoupled(compressor=c, **tables(4)), targets_of(4), emulate(4))[-1][0]
        for c in (None, code)
    )
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=0.1), plain, coded)


@pytest.mark.few(2)
@pytest.mark.parametrize("rule", ["mean", "rda"])
@pytest.mark.parametrize("weighed", [False, True])
def test_bytes_of_a_period_as_stated_as_traced_as_compiled(rule, weighed):
    """The params once; a number for each leaf by "rda"; numbers for the weights."""
    n, params = 4, {"a": jnp.zeros((8, 8)), "b": jnp.zeros((6, 6)), "c": jnp.zeros(12)}
    how: Any = {"tokens": [[1, 2, 3, 4]]} if weighed else {}
    tx = relaxjax.decoupled_diloco(
        optax.sgd(1.0), "data", sync_every=2, merge=rule, overlap=1, **how
    )
    mesh = mesh_of(n)
    rda = rule == "rda"
    stated = [  # each message of d elements: 2 (n - 1) ceil(d / n) of four bytes
        sum(6 * 4 * -(-d // n) for d in (size, *[1, 1] * weighed, *lengths))
        for leaves, size in ((2, 36 + 12), (1, 64))
        for lengths in [[leaves + weighed] * rda]
    ]
    each = [relaxjax.wire_bytes(tx, params, mesh, start=t) for t in (2, 3)]
    assert each == stated  # each fragment a step after it was read
    state = relaxjax.init(tx, params, mesh)
    step = relaxjax.data_parallel(helpers.step_of(lambda x, _: x, tx), mesh)
    batch = jax.ShapeDtypeStruct((n,), jnp.float32)
    assert relaxjax.compiled_wire_bytes(step, *state, batch) == sum(stated)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"fragments": 3}, "sync_every=4 must be a multiple of fragments=3, such as 6"),
        ({"overlap": 4}, "overlap=4 must be below sync_every=4"),
        ({"merge": "median"}, "merge='median' must be one of mean, rda"),
        ({"present": 0.0}, "present=0.0 says that nobody ever contributes"),
        ({"present": 2}, "present=2 must be a probability"),
        (
            {"adopts": [[1, 1]] * 2, "present": [[1, 1]]},
            "adopts repeats after 2 merges",
        ),
        ({"tokens": [3, 4]}, r"tokens of shape \(2,\) and dtype int64 must be numbers"),
        ({"tokens": [[3, -4]]}, "tokens hold -4 to 3, and must be finite"),
        ({"tokens": [[0, 0]]}, "tokens hold 0 to 0, and must be finite"),
    ],
)
def test_refuses_at_construction(how, message):
    with pytest.raises(ValueError, match=f"decoupled_diloco: {message}"):
        decoupled(**how)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("how", "extra", "message"),
    [
        ({"present": [[1, 1]]}, {}, "present has 2 columns and the axis has 3 workers"),
        (
            {"present": [[1] * 3], "adopts": [[1, 1]]},
            {},
            "adopts has 2 columns and the axis has 3 workers",
        ),
        ({"tokens": [[1, 1]]}, {}, "tokens has 2 columns and the axis has 3 workers"),
        ({}, {"weight": 1.0}, "weight= has no meaning here: say in tokens="),
    ],
)
def test_refuses_in_update(how, extra, message):
    tx = decoupled(fragments=1, fragment_of=None, **how)
    with pytest.raises(ValueError, match=f"decoupled_diloco: {message}"):
        jax.vmap(lambda g: tx.update(g, tx.init(g), g, **extra)[0], axis_name="data")(
            jnp.ones((3, 2))
        )
