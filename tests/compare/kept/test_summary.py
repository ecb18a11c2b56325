"""Choices, rows, targets and curves of studies that are made of numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxjax.compare.kept._curves import curve, median_to_target, target_of, to_target
from relaxjax.compare.kept._settings import Setting, StudyRuns
from relaxjax.compare.kept._summary import summary
from relaxjax.compare.kept._verdicts import NONE, WORSE
from tests.compare.studies import METHODS, lost, records, run, study

ONE = study(["all_reduce"])


def tune(rate: float, validation: float | None, **changes):
    return run(
        "all_reduce", 1, phase="tune", rate=rate, validation=validation, **changes
    )


@pytest.mark.parametrize(
    ("better", "values", "rate"),
    [
        ("higher", {0.001: 0.9, 0.003: 0.95, 0.009: 0.94}, 0.003),
        ("lower", {0.001: 0.9, 0.003: 0.95, 0.009: 0.94}, 0.001),
        ("higher", {0.009: 0.95, 0.003: 0.95, 0.001: 0.9}, 0.003),
        ("lower", {0.009: 0.1, 0.003: 0.1, 0.001: 0.1, 0.0003: 0.1}, 0.001),
        ("higher", {0.027: 0.9, 0.009: 0.9, 0.003: 0.9, 0.001: 0.8}, 0.009),
        ("higher", {0.001: 0.9, 0.009: None}, 0.001),
        ("lower", {0.001: None, 0.009: 1e9}, 0.009),
    ],
    ids=["highest", "lowest", "two", "four", "three", "diverged", "diverged and lower"],
)
def test_the_best_on_validation_is_chosen(better, values, rate):
    of = study(["all_reduce"])
    of["task"]["better"] = better
    runs = [
        tune(r, v, diverged=v is None, test=1 - (v or 0)) for r, v in values.items()
    ]
    assert StudyRuns(of, runs).chosen("all_reduce") == Setting(rate)
    assert StudyRuns(of, runs[::-1]).chosen("all_reduce") == Setting(rate)


def test_one_diverged_seed_rules_a_setting_out():
    runs = [tune(0.003, 0.99), tune(0.003, None, diverged=True) | {"seed": 2}]
    assert StudyRuns(ONE, [*runs, tune(0.001, 0.5)]).chosen("all_reduce") == Setting(
        0.001
    )


def test_seeds_of_tuning_are_averaged():
    runs = [
        *(tune(0.001, v) | {"seed": s} for s, v in enumerate((0.9, 0.9))),
        *(tune(0.003, v) | {"seed": s} for s, v in enumerate((0.99, 0.7))),
    ]
    assert StudyRuns(ONE, runs).chosen("all_reduce") == Setting(0.001)


def test_a_stopped_run_loses_to_one_that_was_not():
    runs = [tune(0.001, 0.99, stopped_at=100), tune(0.003, 0.9)]
    assert StudyRuns(ONE, runs).chosen("all_reduce") == Setting(0.003)
    assert StudyRuns(ONE, runs[:1]).chosen("all_reduce") == Setting(0.001)


def test_nothing_is_chosen_from_nothing_or_from_what_diverged():
    assert StudyRuns(ONE, []).chosen("all_reduce") is None
    assert (
        StudyRuns(ONE, [tune(0.001, None, diverged=True)]).chosen("all_reduce") is None
    )
    assert StudyRuns(ONE, [run("all_reduce", 101)]).chosen("all_reduce") == Setting(
        0.003
    )


def test_only_runs_of_this_study_at_the_chosen_setting_are_reported():
    runs = [
        tune(0.003, 0.9),
        tune(0.009, 0.99, steps=40),  # a shorter study in the same folder
        run("all_reduce", 101),
        run("all_reduce", 101, test=0.5),  # the last counts
        run("all_reduce", 102, rate=0.009),  # chosen before
        run("all_reduce", 7),  # no report seed
        run("power_sgd", 103),
    ]
    found = StudyRuns(ONE, runs).reported("all_reduce")
    assert {seed: one["test"] for seed, one in found.items()} == {101: 0.5}


def test_a_target_is_met_between_two_points():
    rows = [[10, 1.0, 0.2], [20, 1.0, 0.6], [30, 1.0, 0.5], [40, 1.0, 1.0]]
    assert to_target(rows, 0.5, "higher") == pytest.approx(17.5)
    assert to_target(rows, 0.8, "higher") == pytest.approx(35)  # from the best, 0.6
    assert to_target(rows, 0.1, "higher") == 10
    assert to_target(rows, 1.1, "higher") == math.inf
    down = [[step, loss, -value] for step, loss, value in rows]
    assert to_target(down, -0.5, "lower") == pytest.approx(17.5)
    assert to_target([[10, None, None]], 0.5, "lower") == math.inf


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=12),
    st.floats(-1, 1),
    st.floats(0, 1),
)
def test_harder_targets_come_later(values, target, harder):
    rows = [[10 * (i + 1), 0.0, value] for i, value in enumerate(values)]
    first = to_target(rows, target, "higher")
    assert first <= to_target(rows, target + harder, "higher")
    assert math.isinf(first) == (max(values) < target)
    assert first >= 10


def test_the_median_is_not_reached_if_half_the_seeds_do_not():
    good, bad = {"curve": [[10, 1.0, 0.9]]}, {"curve": [[10, 1.0, 0.1]]}
    assert median_to_target([good, good, bad], 0.5, "higher") == (10.0, 2)
    assert median_to_target([good, bad], 0.5, "higher") == (None, 1)
    assert median_to_target([good], None, "higher") == (None, 0)


@pytest.mark.parametrize(
    ("better", "final", "target"),
    [("higher", 0.9, 0.882), ("lower", 1.5, 1.53), ("lower", -2.0, -1.96)],
)
def test_the_target_is_two_percent_worse_than_the_baseline(better, final, target):
    of = study()
    of["task"]["better"] = better
    assert target_of(of, [{"validation": final}] * 2) == pytest.approx(target)
    assert target_of(of, [{"validation": final}, {"validation": None}]) is None
    assert target_of(of, []) is None
    assert target_of(of | {"target": 0.5}, []) == 0.5


def test_a_curve_ends_where_the_first_seed_diverges():
    late = lost("all_reduce", 102, at=120)
    late["curve"][-1][2] = 0.1  # finite again, which does not bring the line back
    found = curve([run("all_reduce", 101), late])
    assert found.steps == [20, 40, 60, 80, 100]
    assert found.diverged
    assert all(np.array(found.low) <= found.mean)
    assert not curve([run("all_reduce", 101)]).diverged
    assert curve([]).steps == []


def test_rows_of_a_whole_study():
    of = study()
    found = summary(of, records(of))
    assert found.remarks == []
    assert [row.method for row in found.rows] == list(METHODS)
    base, coded, *_, gossip = found.rows
    assert base.verdict is None
    assert base.fewer_bytes == 1
    assert coded.fewer_bytes == pytest.approx(32)
    assert coded.setting == Setting(0.003)
    assert coded.tuning_runs == 3
    runs = StudyRuns(of, records(of)).reported(coded.method)
    assert coded.mean == pytest.approx(np.mean([r["test"] for r in runs.values()]))
    assert coded.spread == pytest.approx(
        np.std([r["test"] for r in runs.values()], ddof=1)
    )
    for row in (base, coded):
        assert row.steps_to_target is not None
        assert row.reached == 3
        assert row.bytes_to_target == row.steps_to_target * METHODS[row.method][0]
        name = "1gbit,10ms"
        seconds = row.steps_to_target * of["seconds"][row.method][name]
        assert row.seconds_to_target[name] == pytest.approx(seconds)
    assert gossip.verdict is not None
    assert gossip.verdict.word == WORSE
    assert base.mean
    assert gossip.verdict.difference
    percent = 100 * gossip.verdict.difference.mean / base.mean
    assert percent == pytest.approx(-1.2, abs=0.4)


def test_a_study_under_way_has_rows_too():
    of = study()
    found = summary(of, [])
    assert [row.mean for row in found.rows] == [None] * len(METHODS)
    assert found.target is None
    assert found.rows[1].verdict is not None
    assert found.rows[1].verdict.word == NONE


def test_a_method_that_diverges_at_every_rate_is_worse():
    of = study(["all_reduce", "power_sgd"])
    runs = [r for r in records(of) if r["method"] == "all_reduce"]
    for rate in (0.001, 0.003, 0.009):
        runs.append(lost("power_sgd", 1, phase="tune", rate=rate))
    row = summary(of, runs).rows[1]
    assert row.verdict is not None
    assert row.verdict[:2] == (WORSE, "every setting diverged in 3 tuning runs")
    assert row.steps_to_target is None


def test_the_test_metric_has_no_say_in_the_choice():
    of = study(["all_reduce", "power_sgd"])
    runs = records(of)
    swapped = [one | {"test": one["test"] and -one["test"]} for one in runs]
    for method in of["methods"]:
        assert StudyRuns(of, runs).chosen(method) == StudyRuns(of, swapped).chosen(
            method
        )
