"""The bench of unlike data: its split, its training, and what it reports."""

import json

import jax
import numpy as np
import pytest

from benchmarks.training import heterogeneity as _heterogeneity
from benchmarks.training.heterogeneity_data import by_label, splits_of
from benchmarks.training.heterogeneity_methods import ENTRIES
from benchmarks.training.heterogeneity_quadratics import quadratics
from benchmarks.training.heterogeneity_training import Trained, train


@pytest.fixture(scope="module")
def splits():
    return splits_of(alphas=(1.0, 0.01), seeds=(0, 1), folds=3, workers=4)


def test_each_image_is_held_out_once_and_then_trains_nobody(splits):
    assert splits.images.shape[:2] == (12, 4)  # two alphas, two seeds, three folds
    held = splits.held_labels >= 0
    assert [held[place : place + 3].sum() for place in range(0, 12, 3)] == [1797] * 4
    for run in range(3):
        test = {x.tobytes() for x in splits.held_images[run][held[run]]}
        own = [x.tobytes() for x in splits.images[run].reshape(-1, 64)]
        assert len(set(own)) == len(own) == 4 * ((1797 - len(test)) // 4)
        assert not test & set(own)


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6])
def test_a_small_alpha_leaves_few_labels(alpha):
    labels = np.repeat(np.arange(10), 40).astype(np.int32)
    rows = by_label(labels, alpha, 20, np.random.default_rng(0))
    assert rows.shape == (20, 20)
    assert len(np.unique(rows)) == 400
    often = [np.bincount(labels[own], minlength=10).max() for own in rows]
    if alpha < 1:
        assert np.median(often) == 20
    if alpha > 1:
        assert np.median(often) <= 6
    again = by_label(labels, alpha, 20, np.random.default_rng(0))
    np.testing.assert_array_equal(rows, again)


@pytest.mark.slow
def test_training_learns_and_only_gossip_drifts_apart(splits):
    few = jax.tree.map(lambda x: x[[0, -1]], splits)
    exact, ring = (next(e for e in ENTRIES if e.name == n) for n in _COMPARED[:2])
    rates = np.asarray([0.01, 0.5], np.float32)
    short, long = (train(exact.make, rates, few, steps) for steps in (1, 60))
    assert short.loss.shape == (2, 2)
    assert (long.loss[:, 1] < 0.5 * short.loss[:, 1]).all()
    assert (long.accuracy[:, 1] > 0.6).all()
    np.testing.assert_allclose(long.distance, 0, atol=1e-6)
    apart = train(ring.make, rates, few, 60).distance[:, 1]
    assert (apart > 0.05).all()
    assert apart[1] > apart[0]  # the data of the second differ more


@pytest.mark.long
def test_workers_with_equal_data_draw_their_own_batches(splits):
    one = jax.tree.map(lambda x: x[:1], splits)
    same = one._replace(
        images=np.repeat(one.images[:, :1], 4, axis=1),
        labels=np.repeat(one.labels[:, :1], 4, axis=1),
    )
    ring = next(e for e in ENTRIES if e.name == _COMPARED[1])
    assert train(ring.make, np.asarray([0.5], np.float32), same, 3).distance > 0.01


def test_the_rate_that_trains_best_counts(splits):
    loss = np.ones((12, 3)) * [0.5, 0.3, np.nan]
    loss[splits.alphas == 0.01] = [0.1, 0.2, 0.3]
    found = Trained(loss, np.tile([0.7, 0.8, 0.9], (12, 1)), np.zeros((12, 3)))
    for alpha, rate, accuracy in ((1.0, 2.0, 0.8), (0.01, 1.0, 0.7)):
        row = _heterogeneity._row(ENTRIES[0], alpha, splits, [1.0, 2.0, 4.0], found)
        assert (row["rate"], row["accuracies"]) == (rate, [accuracy] * 6)


_COMPARED = ["all_reduce", "gossip, ring", "gradient_tracking, ring"]


@pytest.mark.slow
def test_what_is_reported_follows_from_the_runs(tmp_path, monkeypatch):
    entries = [e for e in ENTRIES if e.name in _COMPARED]
    monkeypatch.setattr(_heterogeneity, "ENTRIES", entries)
    monkeypatch.setattr(_heterogeneity, "ALPHAS", (1.0, 0.1))
    options = {"seeds": 1, "steps": 20, "workers": 4, "folds": 2}
    result = _heterogeneity.heterogeneity(**options, out=str(tmp_path))
    rows = result["rows"]
    assert [row["method"] for row in rows] == [n for n in _COMPARED for _ in range(2)]
    for row, base in zip(rows, rows[:2] * 3, strict=True):
        pairs = 100 * np.subtract(row["accuracies"], base["accuracies"])
        assert row["points"][0] == pytest.approx(pairs.mean(), abs=1e-9)
        assert row["rate"] in np.asarray(_heterogeneity.RATES, np.float32)
    saved = json.loads((tmp_path / "heterogeneity.json").read_text())
    assert saved["rows"] == rows
    assert (tmp_path / "heterogeneity.png").stat().st_size > 10_000


@pytest.mark.long
def test_quadratics_rest_where_theory_says():
    rows = quadratics(8)
    for row in rows:
        assert row["found"] == pytest.approx(row["theory"], abs=2e-5)
        assert row["apart"] < 1e-4
    theory = {row["method"]: row["theory"] for row in rows}
    assert theory["gossip, ring"] > 0.1
    assert theory["relay_sum, chain"] == 0
