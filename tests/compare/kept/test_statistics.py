"""Statistics against scipy on known data, and Holm's procedure against its laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from relaxjax.compare.kept._statistics import ALPHA, holm, levels, paired
from relaxjax.compare.kept._verdicts import ALIKE, BETTER, NONE, WORSE, verdicts

# Hours of sleep gained with two drugs, ten patients: Student (1908), table on page 20.
STUDENT = (
    [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
    [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
)
PROBABILITIES = st.lists(st.floats(0, 1), min_size=1, max_size=9)


def normal(seed: int, count: int) -> tuple[list[float], list[float]]:
    draw = np.random.default_rng(seed)
    base = draw.normal(1.5, 0.1, count)
    return (base + draw.normal(0.01, 0.02, count)).tolist(), base.tolist()


CASES = [STUDENT, *(normal(seed, count) for seed, count in enumerate((2, 3, 5, 30)))]


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("case", CASES, ids=lambda case: len(case[0]))
def test_pairs_are_those_of_scipy(case, alpha):
    values, base = case
    found = paired(values, base, alpha=alpha)
    known = stats.ttest_rel(values, base)
    ends = known.confidence_interval(1 - alpha)
    assert found.mean == pytest.approx(np.mean(values) - np.mean(base))
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), rel=1e-9)
    assert found.p == pytest.approx(known.pvalue, rel=1e-9)
    assert found.pairs == len(values)


def test_students_own_figures():
    found = paired(*STUDENT)
    assert found.mean == pytest.approx(1.58)
    assert found.p == pytest.approx(0.00283, abs=5e-6)


def test_one_pair_has_no_interval():
    assert paired([2.0], [1.5]) == (0.5, None, None, None, 1)


@pytest.mark.parametrize("shift", [0, 1, 5])
def test_pairs_without_spread_have_no_interval_but_where_they_are_equal(shift):
    """Accuracies on 360 rows are often apart by the same rows, but for float32."""
    right = np.array([101, 200, 351])
    values, base = ((n / 360).astype(np.float32) for n in (right + shift, right))
    found = paired(values.tolist(), base.tolist())
    assert shift == 0 or np.ptp(values.astype(float) - base) > 0
    assert found.p == (1.0 if shift == 0 else None)
    assert found.low == (pytest.approx(0) if shift == 0 else None)


@pytest.mark.parametrize("values", [[], [1.0, 2.0]])
def test_pairs_of_unequal_number(values):
    with pytest.raises(ValueError, match=f"got {len(values)} values and 0 of the"):
        paired(values, [])


def test_holm_by_hand():
    # Sorted: 0.005 * 4 = 0.02; 0.01 * 3 = 0.03; 0.03 * 2 = 0.06; 0.04 * 1 -> 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    # Judged at 0.05 / 4 and 0.05 / 3; at 0.05 / 2 the next fails, and so the last.
    found = levels([0.01, 0.04, 0.03, 0.005])
    assert found == pytest.approx([0.05 / 3, 0.025, 0.025, 0.0125])


@given(PROBABILITIES)
def test_laws_of_holm(p_values):
    corrected = holm(p_values)
    order = np.argsort(p_values, kind="stable")
    assert all(c >= p for c, p in zip(corrected, p_values, strict=True))
    assert np.all(np.diff(np.array(corrected)[order]) >= 0)
    assert max(corrected) <= 1
    smallest = int(order[0])
    bonferroni = min(1.0, len(p_values) * p_values[smallest])
    assert corrected[smallest] == pytest.approx(bonferroni)


@given(PROBABILITIES, st.floats(0, 1))
def test_one_more_method_makes_no_other_more_significant(p_values, more):
    with_it = holm([*p_values, more])[:-1]
    alone = holm(p_values)
    assert all(b >= a - 1e-15 for a, b in zip(alone, with_it, strict=True))


@given(PROBABILITIES)
def test_levels_and_corrected_values_say_the_same(p_values):
    both = zip(p_values, holm(p_values), levels(p_values), strict=True)
    for p, corrected, level in both:
        assert ALPHA / len(p_values) <= level <= ALPHA
        if abs(corrected - ALPHA) > 1e-12:
            assert (p <= level) == (corrected <= ALPHA)


def by_seed(values) -> dict[int, float | None]:
    return dict(enumerate(values))


BASE = (0.95, 0.96, 0.97, 0.955)


@pytest.mark.parametrize(
    ("shift", "noise", "higher", "lower"),
    [
        (0.02, 0.001, BETTER, WORSE),
        (-0.02, 0.001, WORSE, BETTER),
        (0.0, 0.01, *[ALIKE] * 2),
    ],
)
def test_words(shift, noise, higher, lower):
    runs = [x + shift + noise * s for x, s in zip(BASE, (1, -1, 1, -1), strict=True)]
    both = {"base": by_seed(BASE), "a": by_seed(runs)}
    assert verdicts(both, "base", better="higher")["a"].word == higher
    assert verdicts(both, "base", better="lower")["a"].word == lower


@given(st.integers(0, 2**32), st.integers(3, 8), st.integers(1, 6))
def test_an_interval_excludes_zero_exactly_if_there_is_a_word(seed, seeds, methods):
    draw = np.random.default_rng(seed)
    base = draw.normal(1, 0.1, seeds)
    runs = {
        f"m{i}": by_seed(base + draw.normal(draw.normal(0, 0.02), 0.02, seeds))
        for i in range(methods)
    }
    found = verdicts({"base": by_seed(base), **runs}, "base", better="lower")
    for verdict in found.values():
        difference = verdict.difference
        assert difference is not None
        assert difference.low is not None
        assert difference.high is not None
        excluded = difference.low > 0 or difference.high < 0
        assert excluded == (verdict.word in (BETTER, WORSE))
        if excluded:
            assert verdict.word == (WORSE if difference.mean > 0 else BETTER)


def test_methods_share_one_chance_of_a_wrong_word():
    """Five methods that are the baseline with noise: one in twenty studies errs."""
    draw, wrong = np.random.default_rng(0), 0
    for _ in range(100):
        base = draw.normal(1, 0.1, 4)
        noise = {f"m{i}": by_seed(base + draw.normal(0, 0.01, 4)) for i in range(5)}
        found = verdicts({"base": by_seed(base), **noise}, "base", better="lower")
        wrong += any(verdict.word != ALIKE for verdict in found.values())
    assert wrong <= 10  # 5 expected; without the correction about 20


def test_no_verdict_below_three_seeds():
    runs = {"base": by_seed(BASE[:2]), "a": by_seed([0.5, 0.51])}
    found = verdicts(runs, "base", better="higher")["a"]
    assert found.word == NONE
    assert found.because == "a verdict needs 3 report seeds; there are 2"
    one = verdicts({"base": {1: 0.5}, "a": {1: 0.4, 2: 0.3}}, "base", better="higher")
    assert one["a"].because == "a verdict needs 3 report seeds; there is 1"


def test_a_diverged_run_is_worse_whatever_the_others_say():
    runs = {"base": by_seed(BASE), "a": by_seed([0.99, None, 0.995, 0.99])}
    found = verdicts(runs, "base", better="higher")["a"]
    assert (found.word, found.because) == (WORSE, "1 of 4 runs diverged")
    assert found.difference is not None
    assert found.difference.pairs == 3
    every = verdicts(
        {"base": by_seed(BASE), "a": by_seed([None] * 4)}, "base", better="lower"
    )
    assert every["a"][:3] == (WORSE, "4 of 4 runs diverged", None)


def test_no_verdict_where_the_baseline_diverged():
    runs = {"base": by_seed([0.9, None, 0.9]), "a": by_seed([0.8, 0.81, 0.79])}
    found = verdicts(runs, "base", better="higher")["a"]
    assert (found.word, found.because) == (NONE, "the baseline diverged in 1 of 3 runs")


def test_only_seeds_of_both_are_compared():
    runs = {"base": {1: 1.0, 2: 2.0, 3: 3.0}, "a": {2: 2.1, 3: 3.2, 4: 9.0, 1: 1.15}}
    found = verdicts(runs, "base", better="lower")["a"]
    assert found.difference is not None
    assert found.difference.mean == pytest.approx(0.15)
    assert found.pairs == 3


@pytest.mark.parametrize(
    ("baseline", "better", "message"),
    [
        ("base", "more", 'better must be "higher" or "lower": got \'more\''),
        ("other", "lower", r"the baseline 'other' has no runs: \['base'\]"),
    ],
)
def test_errors(baseline, better, message):
    with pytest.raises(ValueError, match=message):
        verdicts({"base": {1: 1.0}}, baseline, better=better)
