"""Each rule on rows: golden tables, oracles on lists of vectors, laws, and refusals."""

import itertools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import merges
from relaxjax.merges import Rule, rule_of
from relaxjax.merges._sorted import comparisons
from tests.merges import oracles
from tests.merges.compiled import merged

any_merges: Any = merges
X = np.array([[1.0, 0], [2, 1], [1, 2], [2, 1], [100, -100]])
FOUR = X[:4]

GOLDEN = [
    (merges.median(), X, (2, 1)),
    (merges.trimmed(1), X, (1.66667, 0.66667)),
    (merges.trimmed(2), X, (2, 1)),
    (merges.trimmed(9), X, (2, 1)),
    (merges.median(), FOUR, (1.5, 1)),
    (merges.trimmed(1), FOUR, (1.5, 1)),
    (merges.trimmed(0), X, (21.2, -19.2)),
    (merges.geometric_median(1), X, (7.29865, -4.95143)),
    (merges.geometric_median(3), X, (1.96185, 0.51250)),
    (merges.geometric_median(4), X, (1.85946, 0.80780)),
    (merges.geometric_median(8), X, (1.98867, 0.98867)),
    (merges.geometric_median(32), X, (2, 1)),
    (merges.centered_clip(2.0, 1), X, (1.37727, 0.43270)),
    (merges.centered_clip(2.0, 3), X, (1.83061, 0.63405)),
    (merges.nearest(1, merges.median()), X, (1.5, 1)),
    (merges.clipped(), X, (1.51623, 0.48377)),
    (merges.clipped("all"), X, (1.51623, 0.48377)),
]
"""Of five workers, whose last one is wrong, computed by hand and in float64."""


def text(value):
    return repr(value) if isinstance(value, Rule) else None


@pytest.mark.parametrize(("rule", "x", "expected"), GOLDEN, ids=text)
def test_golden(rule, x, expected):
    np.testing.assert_allclose(merged(rule, x), expected, rtol=0, atol=2e-5)


def test_means_of_neighbors():
    """Four times the same, and the wrong one's."""
    rule = merges.nearest(1, merges.trimmed(0))
    expected = (4 * np.array([1.5, 1]) + np.array([26.25, -24.5])) / 5
    np.testing.assert_allclose(merged(rule, X), expected, atol=1e-5)


ORACLES = {
    merges.clipped("all"): lambda x, w: oracles.clipped(x, w),
    merges.clipped("all", cap=None): lambda x, w: oracles.clipped(x, w, cap=None),
    merges.rda(): lambda x, w: oracles.rda(x, w),
    merges.median(): lambda x, w: oracles.median(x),
    merges.trimmed(1): lambda x, w: oracles.trimmed(x, 1),
    merges.trimmed(3): lambda x, w: oracles.trimmed(x, 3),
    merges.geometric_median(6): lambda x, w: oracles.geometric_median(x, 6),
    merges.centered_clip(3.0, 4): lambda x, w: oracles.centered_clip(x, 3.0, 4),
    merges.nearest(2, merges.median()): lambda x, w: oracles.nearest(
        x, 2, oracles.median
    ),
    merges.nearest(1, merges.geometric_median(3)): lambda x, w: oracles.nearest(
        x, 1, lambda y: oracles.geometric_median(y, 3)
    ),
}


@pytest.mark.few(12)
@pytest.mark.parametrize("rule", ORACLES, ids=text)
@pytest.mark.parametrize("workers", [1, 2, 5, 8])
def test_equals_the_oracle_over_those_who_are_present(rule, workers):
    """One of the rows is absent, and another not finite."""
    rng = np.random.default_rng(workers)
    x = rng.normal(size=(workers + 2, 11)) + 1
    x[0] *= 30
    weights = rng.integers(1, 9, workers + 2).astype(float)
    weights[1], x[workers, 3] = 0, np.nan
    here = [i for i in range(workers + 2) if i not in (1, workers)]
    expected = ORACLES[rule]([x[i] for i in here], weights[here])
    found = merged(rule, x.astype(np.float32), weights)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


RULES = [*ORACLES, merges.clipped(), merges.rda("mean")]
every_rule = pytest.mark.parametrize("rule", RULES, ids=text)


@pytest.mark.few(12)
@every_rule
def test_a_row_that_is_not_there_changes_no_bit(rule):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 7)).astype(np.float32)
    others = merged(rule, x, [1, 1, 1, 1, 1, 0])
    for wrong in (np.nan, np.inf, -np.inf, 1e30):
        x[5, 2] = wrong
        np.testing.assert_array_equal(merged(rule, x, np.ones(6)), others)
    x[5] = 0
    for weight in (-1, np.nan, np.inf):
        found = merged(rule, x, [1, 1, 1, 1, 1, weight])
        np.testing.assert_array_equal(found, others)


@every_rule
def test_nobody_is_zero_and_nobody_finite_is_nan(rule):
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(merged(rule, x, np.zeros(3)), np.zeros(4))
    assert np.isnan(merged(rule, np.nan * x)).all()


@every_rule
def test_equal_rows_merge_to_that_row(rule):
    row = np.random.default_rng(0).normal(size=9).astype(np.float32)
    radius = 1 if rule.name != "centered_clip" else 0.1  # all of it within its reach
    x = radius * np.stack([row] * 5)
    np.testing.assert_allclose(merged(rule, x), x[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("by", ["leaf", "all"])
def test_equal_norms_give_the_bits_of_the_mean(by):
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    x = np.stack([np.roll(x[0], i) for i in range(4)])
    x[:] = np.sort(np.abs(x), axis=1)  # the same numbers in the same order
    signs = np.array([1, -1, 1, 1], np.float32)
    x *= signs[:, None]
    mean = (((x[0] + x[1]) + x[2]) + x[3]) / np.float32(4)
    np.testing.assert_array_equal(merged(merges.clipped(by), x), mean)


def test_by_leaf_an_attack_on_one_leaf_does_not_hide():
    small, large = np.ones((4, 2)), np.full((4, 2), 1e3)
    small[3] = 1e3
    rows = {"small": small.astype(np.float32), "large": large.astype(np.float32)}
    np.testing.assert_allclose(merged(merges.clipped(), rows)["small"], [1, 1])
    assert merged(merges.clipped("all"), rows)["small"][0] > 100


@pytest.mark.parametrize("n", range(1, 12))
def test_the_network_sorts(n):
    """All sequences of zeros and ones: Knuth's principle."""
    pairs = comparisons(n)
    assert all(0 <= i < j < n for i, j in pairs)
    for bits in itertools.product((0, 1), repeat=n):
        row = list(bits)
        for i, j in pairs:
            row[i], row[j] = min(row[i], row[j]), max(row[i], row[j])
        assert row == sorted(row)


@pytest.mark.parametrize("n", [3, 4, 7, 16])
def test_the_median_is_numpys_to_the_bit(n):
    x = np.random.default_rng(n).normal(size=(n, 1000)).astype(np.float32)
    x[:, ::7] = x[0, ::7]  # ties
    np.testing.assert_array_equal(merged(merges.median(), x), np.median(x, axis=0))


@pytest.mark.parametrize("far", [1e3, 1e8, 1e15])
@pytest.mark.parametrize("place", [0, 4])
def test_distances_are_not_lost_by_one_that_is_far(far, place):
    """A thousand entries of 100; honest workers differ by 0.1 in a few of them."""
    rng = np.random.default_rng(0)
    x = np.full((5, 1000), 100.0)
    x[:, :5] += 0.1 * rng.normal(size=(5, 5))
    x[place] += far
    honest = [x[i] for i in range(5) if i != place]
    found = merged(merges.nearest(1, merges.median()), x.astype(np.float32))
    spread = np.ptp(honest, axis=0).max()
    assert np.abs(found - np.mean(honest, axis=0)).max() < 2e-4 < spread
    far_away = merges.geometric_median(60)
    centre = oracles.geometric_median(honest, 60)
    assert np.abs(merged(far_away, x.astype(np.float32)) - centre).max() < 0.2


def test_each_is_its_own_nearest():
    """Also where a distance to another one is lost by rounding."""
    x = np.array([[0], [0], [0], [1000], [1000.0625]], np.float32)
    found = merged(merges.nearest(4, merges.trimmed(0)), x)
    np.testing.assert_array_equal(found, x.sum(axis=0) / np.float32(5))


@pytest.mark.long
def test_narrow_floats_are_rounded_once():
    x = np.random.default_rng(0).normal(size=(5, 64)).astype(jnp.bfloat16)
    for rule in RULES:
        found, wide = merged(rule, x), merged(rule, x.astype(np.float32))
        assert found.dtype == jnp.bfloat16
        np.testing.assert_array_equal(found, wide.astype(jnp.bfloat16))


@every_rule
def test_plain_data_and_back(rule):
    record = json.loads(json.dumps(rule.record()))
    assert rule_of(record) == rule
    assert hash(rule_of(record)) == hash(rule)


@pytest.mark.parametrize(
    "record",
    [
        None,
        "median",
        {},
        {"merge": "mean"},
        {"merge": ["median"]},
        {"merge": "trimmed"},
        {"merge": "trimmed", "b": -1},
        {"merge": "trimmed", "b": "1"},
        {"merge": "trimmed", "b": 1, "c": 1},
        {"merge": "clipped", "cap": 10**400},
        {"merge": "clipped", "by": []},
        {"merge": "geometric_median", "steps": 10**9},
        {"merge": "nearest", "f": 1, "rule": "median"},
        {"merge": "nearest", "f": 1, "rule": {"merge": "nearest", "f": 1}},
    ],
)
def test_other_data_is_no_rule(record):
    with pytest.raises((ValueError, TypeError)):
        rule_of(record)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: any_merges.clipped("leaves"), r"clipped: by='leaves' must be one of"),
        (lambda: any_merges.clipped(cap=0.5), r"clipped: cap=0.5 must be 1 or more"),
        (lambda: any_merges.clipped(cap=jnp.ones(())), r"clipped: cap is a JAX array"),
        (lambda: merges.rda("mode"), r"rda: length='mode' must be one of"),
        (lambda: any_merges.trimmed(1.5), r"trimmed: b=1.5 must be a whole number"),
        (lambda: merges.geometric_median(0), r"geometric_median: steps=0"),
        (lambda: merges.geometric_median(2000), r"steps=2000 must be at most 1000"),
        (lambda: merges.geometric_median(nu=0.0), r"geometric_median: nu=0.0 must"),
        (lambda: merges.centered_clip(-1.0), r"centered_clip: radius=-1.0 must"),
        (lambda: merges.centered_clip(np.inf), r"centered_clip: radius=inf must"),
        (lambda: merges.nearest(-1, merges.median()), r"nearest: f=-1 must"),
        (lambda: merges.nearest(1, merges.clipped()), r"nearest: rule=clipped\("),
        (
            lambda: any_merges.nearest(1, "median"),
            r"nearest: rule must be of type Rule",
        ),
        (lambda: any_merges.merged("median", X), r"merged: rule must be of type Rule"),
        (lambda: merged(merges.median(), [X, X[:2]]), r"a row for each worker"),
        (lambda: merged(merges.median(), np.ones((2, 2), int)), r"of real floats"),
        (lambda: merged(merges.median(), X, [1, 2]), r"weights of shape \(2,\)"),
    ],
)
def test_refusals_name_what_is_wrong(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_merging_is_one_program():
    jitted = jax.jit(merges.merged, static_argnums=0)
    x = X.astype(np.float32)
    np.testing.assert_allclose(jitted(merges.median(), x), [2, 1])


STRICT = {
    "types": lambda: jax.numpy_dtype_promotion("strict"),
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
}


@pytest.mark.parametrize("flags", STRICT)
@pytest.mark.parametrize("rule", {repr(rule): rule for rule, *_ in GOLDEN}.values())
def test_every_rule_traces_under_strict_flags(rule, flags):
    shapes = {"a": (5, 3, 2), "b": (5, 7), "s": (5,)}
    rows = {k: jax.ShapeDtypeStruct(s, jnp.float32) for k, s in shapes.items()}
    weights = jax.ShapeDtypeStruct((5,), jnp.float32)
    with STRICT[flags]():
        jax.eval_shape(lambda x, w: merges.merged(rule, x, w), rows, weights)
