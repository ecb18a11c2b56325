"""Paired statistics against scipy and by hand; verdicts in words."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from relaxjax.compare._statistics import Difference, difference, holm, verdict


@pytest.mark.parametrize("better", ["lower", "higher"])
@pytest.mark.parametrize("n", [2, 3, 10])
def test_differences_are_scipys(n, better):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.5, size=n), rng.normal(size=n)
    found = difference(dict(enumerate(a)), dict(enumerate(b)), better)
    assert found is not None
    sign = 1 if better == "lower" else -1
    test = stats.ttest_rel(sign * a, sign * b)
    interval = test.confidence_interval(0.95)
    expected = (sign * (a - b).mean(), interval.low, interval.high, test.pvalue)
    np.testing.assert_allclose(np.array(found[:4], float), expected)
    assert found.pairs == n


def test_only_seeds_of_both_are_paired():
    found = difference({0: 1.0, 1: 2.0, 7: 99.0}, {1: 1.0, 0: 0.5, 8: -99.0}, "lower")
    assert found is not None
    assert (found.mean, found.pairs) == (0.75, 2)
    assert difference({0: 1.0}, {1: 1.0}, "lower") is None


def test_holm_by_hand():
    """0.01 x 4, 0.02 x 3, max(0.03 x 2, 0.06), 0.5 x 1."""
    assert holm([0.03, 0.01, None, 0.5, 0.02]) == pytest.approx(
        [0.06, 0.04, None, 0.5, 0.06]
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_only_raises(ps):
    adjusted = [p for p in holm(ps) if p is not None]
    assert all(p <= q <= 1 for p, q in zip(ps, adjusted, strict=True))
    order = np.argsort(ps, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()
    assert min(adjusted) == min(1.0, len(ps) * min(ps))


@pytest.mark.parametrize(
    ("mean", "pairs", "p", "diverged", "says"),
    [
        (0.1, 3, 0.01, 0, "worse"),
        (-0.1, 3, 0.01, 0, "better"),
        (0.1, 3, 0.06, 0, "not distinguishable"),
        (0.1, 2, 0.001, 0, "no verdict from 2 seeds"),
        (0.1, 3, 0.01, 1, "diverged in a run"),
    ],
)
def test_verdicts(mean, pairs, p, diverged, says):
    assert verdict(Difference(mean, 0.0, 1.0, p, pairs), p, diverged) == says
