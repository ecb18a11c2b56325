"""What `clipped` promises under attack: bounds that hold whatever a worker sends."""

import itertools

import numpy as np
import pytest

from relaxjax import merges
from tests.merges.compiled import merged

ATTACKS = {
    "x1000": lambda x, rng: 1000 * x[-1],
    "NaN": lambda x, rng: np.where(rng.random(x[-1].shape) < 0.1, np.nan, x[-1]),
    "Inf": lambda x, rng: np.where(rng.random(x[-1].shape) < 0.1, np.inf, x[-1]),
    "sign flip": lambda x, rng: -x[-1],
    "flip x1e9": lambda x, rng: -1e9 * x[-1],
    "zero": lambda x, rng: 0 * x[-1],
    "stale": lambda x, rng: x[-1] + 5 * rng.normal(size=x[-1].shape),
    "duplicate": lambda x, rng: x[0],
    "noise": lambda x, rng: 10.0 ** rng.uniform(-20, 20) * rng.normal(size=x[-1].shape),
}
WEIGHTS = {
    "equal": lambda rng: 1.0,
    "x1000": lambda rng: 1000.0,
    "tokens 1e21": lambda rng: 1e21**1.5,
    "tokens squared": lambda rng: 1e42,
    "negative": lambda rng: -3.0,
    "NaN": lambda rng: np.nan,
    "little": lambda rng: 1e-30,
}


@pytest.mark.few(42)
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("lie", WEIGHTS)
@pytest.mark.parametrize("rule", [merges.clipped("all"), merges.rda()], ids=repr)
def test_one_wrong_worker_is_bounded(attack, lie, rule):
    rng = np.random.default_rng(len(attack) + 31 * len(lie))
    cap = 2.0
    for n in (4, 5, 8):
        x = (1 + rng.normal(size=(n, 50))).astype(np.float64)
        with np.errstate(all="ignore"):
            x[-1] = ATTACKS[attack](x, rng)
            x = x.astype(np.float32)
        w = rng.uniform(0.5, 2.0, n)
        w[-1] = WEIGHTS[lie](rng)
        found = np.asarray(merged(rule, x, w), np.float64)
        honest = np.linalg.norm(x[:-1], axis=1)
        assert np.linalg.norm(found) <= honest.max() * (1 + 1e-5)
        if rule.name == "clipped":
            # Of the weight it has f cap / (m // 2 + 1) at most, times a length of c.
            alone = _honest_part(x, w, cap)
            share = cap / (n // 2 + 1)
            assert np.linalg.norm(found - alone) <= share * honest.max() * (1 + 1e-5)


@pytest.mark.few(20)
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("lie", WEIGHTS)
def test_by_leaf_one_wrong_worker_is_bounded_in_each(attack, lie):
    """Leaves of lengths that are far apart, of which it attacks one or all."""
    rng = np.random.default_rng(len(attack) + 37 * len(lie))
    scales = {"a": 1.0, "b": 1e-3, "c": 1e4}
    for n, attacked in itertools.product((4, 5, 8), ("abc", "b")):
        rows = {k: s * (1 + rng.normal(size=(n, 20))) for k, s in scales.items()}
        with np.errstate(all="ignore"):
            for name in attacked:
                rows[name][-1] = ATTACKS[attack](rows[name], rng)
            rows = {name: x.astype(np.float32) for name, x in rows.items()}
        w = rng.uniform(0.5, 2.0, n)
        w[-1] = WEIGHTS[lie](rng)
        found = merged(merges.clipped(), rows, w)
        whole = np.linalg.norm(
            np.concatenate([*rows.values()], axis=1)[-1].astype(float)
        )
        w[-1] = w[-1] if whole < 1e18 else 0  # absent in all leaves, or in none
        for name, x in rows.items():
            honest = np.linalg.norm(x[:-1], axis=1).max() * (1 + 1e-5)
            assert np.linalg.norm(found[name]) <= honest
            alone = _honest_part(np.where(w[:, None] > 0, x, 0), w, cap=2.0)
            far = np.linalg.norm(np.float64(found[name]) - alone)
            assert far <= 2 / (n // 2 + 1) * honest


def _honest_part(x, w, cap):
    """What the others' clipped contributions add up to, in float64."""
    n, x = len(x), x.astype(np.float64)
    lengths = np.linalg.norm(x, axis=1)
    here = np.isfinite(w) & (w > 0) & (lengths < 1e18)
    c = np.sort(lengths[here])[(here.sum() - 1) // 2]
    usual = np.sort(w[here])[(here.sum() - 1) // 2]
    w = np.where(here, np.minimum(np.where(here, w, 0), cap * usual), 0)
    short = [min(1, c / (one or 1)) for one in lengths[: n - 1]]
    parts = [w[i] * short[i] * x[i] for i in range(n - 1)]
    return np.sum(parts, axis=0) / w.sum()


@pytest.mark.few(48)
@pytest.mark.parametrize(
    "rule",
    [
        merges.median(),
        merges.trimmed(1),
        merges.geometric_median(),
        merges.nearest(1, merges.median()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("attack", ATTACKS)
def test_rank_and_distance_rules_stay_near_the_others(rule, attack):
    """No farther from their mean than twice the farthest of them."""
    rng = np.random.default_rng(len(attack))
    x = 1 + rng.normal(size=(8, 50))
    with np.errstate(all="ignore"):
        x[-1] = ATTACKS[attack](x, rng)
        x = x.astype(np.float32)
    honest = x[:-1].astype(np.float64)
    centre = honest.mean(axis=0)
    far = np.linalg.norm(honest - centre, axis=1).max()
    assert np.linalg.norm(merged(rule, x) - centre) <= 2 * far


def test_a_mean_has_no_such_bound():
    """The tests above would see it."""
    x = np.ones((4, 50), np.float32)
    x[-1] *= 1000
    assert np.linalg.norm(merged(merges.trimmed(0), x)) > 100 * np.linalg.norm(x[0])
