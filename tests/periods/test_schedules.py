"""Periods as functions of the step: golden values, laws, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from relaxjax import periods
from relaxjax.periods._calendar import LONGEST, calendar

COSINE = optax.cosine_decay_schedule(0.008, 300)
WARM = optax.warmup_cosine_decay_schedule(0.0, 0.008, 40, 300)
SCHEDULES = {
    "qsr": periods.qsr(COSINE, 0.0175, steps=300),
    "qsr, warm-up": periods.qsr(WARM, 0.0175, warm_up=40, steps=300),
    "linear": periods.qsr(COSINE, 0.05, power=1.0, least=1, most=32),
    "stages": periods.stages(40, 2, growth=1.5),
    "post_local": periods.post_local(60, 16),
    "table": periods.table([3, 3, 4, 7, 1, 12]),
}


def _table(rows: Any) -> Any:
    return periods.table(rows)


def qsr_ref(rate, alpha, least, step, steps) -> int:
    """As its authors' program computes it, in Python floats."""
    eta = float(rate(step))
    h = 10**9 if eta == 0 else int((alpha / eta) ** 2)
    return max(min(max(h, least), steps - step), 1)


def test_golden_values_of_qsr():
    rates = (0.008, 0.004, 0.002, 0.001)
    found = [int(periods.qsr(rate, 0.0175)(0)) for rate in rates]
    assert found == [4, 19, 76, 306]
    assert int(periods.qsr(0.001, 0.0175, steps=100)(90)) == 10
    assert int(periods.qsr(0.001, 0.0175, warm_up=5)(4)) == 4
    assert int(periods.qsr(0.001, 0.0175, warm_up=5)(5)) == 306


@pytest.mark.parametrize("alpha", [0.01, 0.0175, 0.03])
def test_qsr_is_its_authors_rule(alpha):
    steps, count, expected = 300, 0, []
    while count < steps:
        count += qsr_ref(COSINE, alpha, 4, count, steps)
        expected.append(count)
    rule = periods.qsr(COSINE, alpha, steps=steps)
    assert periods.meetings(rule, steps) == expected


@pytest.mark.parametrize("rate", [0.0, 1e-30, float("nan"), -1.0])
def test_qsr_at_rates_near_nothing(rate):
    """(alpha / 0)^2 is no int32; a rate that is not a number is not trusted."""
    h = int(jax.jit(periods.qsr(rate, 0.01, most=50))(7))
    assert h == (4 if np.isnan(rate) or rate < 0 else 50)
    assert int(periods.qsr(0.0, 0.01)(0)) == LONGEST
    assert int(periods.qsr(0.0, 0.0)(0)) == 4  # 0 / 0


def test_qsr_takes_a_rounding_below_a_whole_number_for_it():
    """In float32, 0.01 / (0.01 / 3) is below 3."""
    for k in range(2, 60):
        assert int(periods.qsr(0.01 / k, 0.01)(0)) == max(4, k * k)


def test_constant_alpha_of_zero_is_the_least():
    rule = periods.qsr(COSINE, 0.0, least=5)
    assert periods.meetings(rule, 22) == periods.meetings(5, 22) == [5, 10, 15, 20]


@pytest.mark.parametrize("name", ["qsr", "qsr, warm-up"])
def test_periods_of_a_run_add_up_to_its_steps(name):
    met = periods.meetings(SCHEDULES[name], 300)
    assert met[-1] == sum(np.diff([0, *met])) == 300


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_recorded_run_is_a_table(name):
    met = periods.meetings(SCHEDULES[name], 300)
    lengths = np.diff([0, *met]).tolist()
    assert periods.meetings(periods.table(lengths), met[-1]) == met


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_asked_by_number_or_array_jitted_or_not(name):
    rule = SCHEDULES[name]
    jitted = jax.jit(rule)
    for step in (0, 1, 39, 40, 60, 123, 290):
        found = {int(rule(step)), int(rule(jnp.int32(step))), int(jitted(step))}
        assert len(found) == 1, step


def test_tables_of_pairs_lists_and_stages():
    pairs = periods.table([(0, 3), (10, 8)])
    assert periods.meetings(pairs, 30) == [3, 6, 9, 12, 20, 28]
    assert periods.meetings(periods.table(((0, 3),)), 9) == [3, 6, 9]
    assert periods.meetings(periods.table([5, 1, 1, 2]), 13) == [5, 6, 7, 9, 11, 13]
    assert periods.meetings(periods.post_local(3, 4), 12) == [1, 2, 3, 7, 11]
    assert periods.meetings(periods.post_local(0, 4), 12) == [4, 8, 12]
    # 8 steps by 2, 8 by 3, 8 by 4, 8 by 6
    found = periods.meetings(periods.stages(8, 2, stretch=1, growth=1.5), 30)
    assert found == [2, 4, 6, 8, 11, 14, 17, 21, 25, 31][:-1]
    assert periods.meetings(periods.stages(8, 3, growth=1), 10) == [3, 6, 9]


def test_what_a_schedule_may_return():
    """A period is a whole number, 1 or more, whatever it says."""
    said = [2.99, 0, -3, jnp.inf, jnp.nan, jnp.bfloat16(5), np.int8(4), 2**31 - 1]
    found = [int(calendar("x", "every", lambda _, x=x: x).length(3)) for x in said]
    assert found == [2, 1, 1, LONGEST, 1, 5, 4, LONGEST]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: periods.qsr(0.1, -1.0), r"alpha=-1.0 must be 0 or more"),
        (lambda: periods.qsr(0.1, 1.0, power=-2), r"power=-2 must be 0 or more"),
        (lambda: periods.qsr(0.1, 1.0, least=0), r"least=0 must be a whole number, 1"),
        (lambda: periods.qsr(0.1, 1.0, least=8, most=4), r"most=4 must .* 8 or more"),
        (lambda: periods.qsr(0.1, 1.0, warm_up=-1), r"warm_up=-1"),
        (lambda: periods.qsr(0.1, 1.0, steps=0), r"steps=0"),
        (lambda: periods.table([]), r"there must be one period at least"),
        (lambda: periods.table([4, 0]), r"periods\[1\]=0 must be a whole number"),
        (lambda: _table([4, 2.5]), r"periods\[1\]=2.5 must be a whole"),
        (lambda: periods.table([(0, 4), (9, 0)]), r"the period of row 1, \(9, 0\)"),
        (lambda: periods.table([(0, 4), (0, 2)]), r"the step of row 1.*1 or more"),
        (lambda: periods.table([(5, 4)]), r"\(5, 4\), must begin at step 0"),
        (lambda: periods.table([1, 2] * 2049), r"4098 rows.* more than 4096"),
        (lambda: periods.post_local(-1, 4), r"step=-1"),
        (lambda: periods.post_local(1, 0), r"sync_every=0"),
        (lambda: periods.stages(0, 4), r"steps=0"),
        (lambda: periods.stages(4, 4, growth=0.5), r"growth=0.5 must be 1 or more"),
        (lambda: periods.stages(4, 1, stretch=0.5), r"stretch=0.5 must be 1 or more"),
        (lambda: periods.stages(1, 1, stretch=1, growth=1.001), r"growth=1.001 must"),
        (lambda: periods.meetings(4, 0), r"steps=0"),
        (lambda: periods.meetings(0, 4), r"period=0 must be a whole number"),
    ],
)
def test_what_is_refused(made, said):
    with pytest.raises(ValueError, match=said):
        made()


def test_many_equal_periods_are_one_row():
    rule = periods.table([2] * 9000 + [3])
    assert periods.meetings(rule, 18009)[-4:] == [18000, 18003, 18006, 18009]


def test_a_rate_that_rises_from_nothing_needs_its_warm_up():
    """Else workers would first meet after 2^30 steps, or at the end of the run."""
    rate = optax.warmup_cosine_decay_schedule(0.0, 0.008, 50, 300)
    with pytest.raises(ValueError, match=r"0 at the first step, .* pass warm_up="):
        periods.qsr(rate, 0.0175, steps=300)
    assert len(periods.meetings(periods.qsr(rate, 0.0175, warm_up=50), 300)) > 20
