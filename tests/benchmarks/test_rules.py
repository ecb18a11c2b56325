"""The bench of rules: its training, and what it reports."""

from functools import partial

import jax
import numpy as np
import pytest

from benchmarks.training import rules as _rules
from benchmarks.training.heterogeneity_data import splits_of
from benchmarks.training.rules_training import Ended, Knobs, train
from relaxjax import merges

KNOBS = Knobs(np.array([0.05, 0.3]), np.array([0.0, 0.5]))


@pytest.fixture(scope="module")
def splits():
    return splits_of(alphas=(1000.0, 0.1), seeds=(0,), folds=2, workers=4)


@pytest.mark.long
def test_it_learns_and_a_mean_of_all_that_are_present_is_the_mean(splits):
    few = jax.tree.map(lambda x: x[:1], splits)
    steps = np.full(4, 3)
    short, long = (train(_rules._mean, KNOBS, few, rounds, steps) for rounds in (1, 8))
    assert short.loss.shape == (1, 2)
    assert (long.loss < short.loss).all()
    same = partial(merges.merged, merges.trimmed(0))
    other = train(same, KNOBS, few, 8, steps)
    np.testing.assert_allclose(other.loss, long.loss, rtol=1e-4)
    assert (long.longest > 1).all()
    assert (long.beyond == 0).all()


def test_weights_are_steps_and_are_capped_as_islands_do():
    rows = {"x": np.array([[0.0], [0.0], [0.0], [1.0]], np.float32)}
    weights = np.array([2, 2, 2, 16], np.float32)
    assert _rules._mean(rows, weights)["x"] == pytest.approx(16 / 22)
    assert _rules._capped(rows, weights)["x"] == pytest.approx(8 / 14)


def test_the_setting_that_trains_best_counts(splits):
    count = len(_rules._knobs().rate)
    loss = np.ones((4, count)) * np.arange(count)
    loss[splits.alphas == 0.1] *= -1
    loss[0, 1] = np.nan
    accuracy = np.tile(np.arange(count) / 10, (4, 1))
    ended = Ended(loss, accuracy, *np.ones((2, 4, count)))
    same, own = _rules._rows("mean", 4, splits, [ended], ended)
    assert (same["rate"], same["momentum"]) == (0.1, 0.5)
    assert (own["rate"], own["momentum"]) == (1.0, 0.9)
    assert own["points"] == [0.0, 0.0, 0.0]
    twice = ended._replace(loss=loss - 100, accuracy=accuracy + 0.1)
    row, _ = _rules._rows("centered_clip(radius)", 4, splits, [ended, twice], ended)
    assert row["radius"] == _rules.RADII[1]
    assert row["accuracies"] == [0.1, 0.1]
