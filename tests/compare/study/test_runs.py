"""Fairness, by the rules that say which run is next."""

import itertools
import math
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given

from relaxjax.compare.kept._settings import StudyRuns
from relaxjax.compare.study._asked import Settings
from relaxjax.compare.study._methods import (
    Planned,
    methods,
    named,
    one_more,
    own,
    settings,
)
from relaxjax.compare.study._runs import hopeless_at, planned, shard_of
from relaxjax.tasks import of_arrays

TASK = of_arrays(
    params=jnp.zeros(2),
    loss=lambda w, x: jnp.mean((x @ w) ** 2),
    metric=lambda w, x: jnp.mean((x @ w) ** 2),
    train=np.ones((8, 2), np.float32),
    test=np.ones((8, 2), np.float32),
)
NAMES = ["all_reduce", "power_sgd", "diloco", "one_bit_adam freeze_step=3"]
GRIDS: list[dict[str, list[float]]] = [
    {},
    {"outer_learning_rate": [0.4, 0.7]},
    {"outer_learning_rate": [0.4, 0.7], "rank": [1, 2, 4]},
]


def key_of(run: Planned) -> str:
    return repr((run.method.label, *run[1:]))


def played(
    method: Any,
    metric_of: Any,
    *,
    tune: int = 3,
    grid: Any = (),
    better: str = "lower",
    known: dict[str, Any] | None = None,
) -> list[Planned]:
    """All runs of a method, in the order in which they are done."""
    known, done = {} if known is None else known, []
    task = replace(TASK, learning_rate=0.01, better=better)
    asked = Settings(seeds=3, tune=tune, grid=dict(grid))
    while True:
        runs = planned(method, known, key_of, task, asked)
        run = next((r for r in runs if key_of(r) not in known), None)
        if run is None:
            return done
        metric = metric_of(run)
        known[key_of(run)] = {"validation": metric, "curve": [], "stopped_at": None}
        done.append(run)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("tune", [2, 3, 5])
def test_every_method_gets_as_many_runs_to_be_tuned(tune, grid):
    counts = set()
    for method in methods(NAMES, TASK):
        done = played(method, lambda run: run.learning_rate, tune=tune, grid=grid)
        tuning = [run for run in done if run.phase == "tune"]
        assert len(set(map(key_of, tuning))) == len(tuning)
        counts.add(len(tuning))
    points = math.prod(map(len, grid.values()))
    assert counts == {tune * points + 1}


@pytest.mark.parametrize("name", NAMES)
def test_rates_are_a_factor_of_three_apart_around_the_usual_one(name):
    method = named(name, TASK)
    rates = sorted(rate for rate, _ in settings(method, 0.01, 3, {}))
    assert rates == pytest.approx([0.01 * method.usual * 3.0**i for i in (-1, 0, 1)])


@given(st.permutations([1.0, 2.0, 3.0]), st.sampled_from(["higher", "lower"]))
def test_one_more_stands_next_to_the_best(values, better):
    method = named("all_reduce", TASK)
    rates = sorted(rate for rate, _ in settings(method, 0.01, 3, {}))
    known = dict(zip(rates, values, strict=True))
    done = played(method, lambda run: known.get(run.learning_rate, 2.5), better=better)
    pick = max if better == "higher" else min
    at = rates.index(pick(rates, key=known.__getitem__))
    extra = done[3].learning_rate
    expected = [rates[0] / 3, math.sqrt(rates[1] * rates[2]), rates[2] * 3][at]
    assert extra == pytest.approx(expected, rel=1e-5)


@given(st.tuples(*[st.sampled_from([1.0, 2.0])] * 4))
def test_what_is_run_for_the_report_is_what_the_report_calls_chosen(values):
    """Also where validation does not tell settings apart: then none is at the edge."""
    left = iter(values)
    done = played(named("all_reduce", TASK), lambda run: next(left, 2.0))
    records = [
        {**run._asdict(), "method": "all_reduce", "validation": value}
        for run, value in zip(done, values, strict=False)
    ]
    study = {"task": {"better": "lower"}, "seeds": [0, 1, 2]}
    setting = StudyRuns(study, records).chosen("all_reduce")
    assert setting is not None
    assert {run.learning_rate for run in done[4:]} == {setting.learning_rate}
    if len(set(values)) == 1:
        rates = [run.learning_rate for run in done[:4]]
        assert min(rates) < setting.learning_rate < max(rates)


def test_the_best_is_reported_on_seeds_that_chose_nothing():
    """The best is the best by validation; a run that ended early is not it."""
    metrics = {0.01: 5.0, 0.00333333: None, 0.03: 4.0, 0.09: 6.0}
    done = played(
        named("all_reduce", TASK), lambda run: metrics.get(run.learning_rate, 1.0)
    )
    tuning = [run for run in done if run.phase == "tune"]
    report = [run for run in done if run.phase == "report"]
    assert {run.learning_rate for run in report} == {0.03}
    assert [run.seed for run in report] == [0, 1, 2]
    assert not {run.seed for run in tuning} & {run.seed for run in report}


@given(st.integers(0, 6))
def test_what_is_left_does_not_depend_on_when_it_stopped(stop):
    whole = played(named("diloco", TASK), lambda run: run.learning_rate)
    known: dict[str, Any] = {
        key_of(run): {"validation": run.learning_rate, "curve": [], "stopped_at": None}
        for run in whole[:stop]
    }
    rest = played(named("diloco", TASK), lambda run: run.learning_rate, known=known)
    assert [*known] == [*map(key_of, whole)]
    assert [*map(key_of, rest)] == [*map(key_of, whole[stop:])]


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_shards_own_whole_methods(parts):
    found = methods(NAMES, TASK)
    dealt = [shard_of(found, (i, parts)) for i in range(1, parts + 1)]
    assert sorted(m.label for part in dealt for m in part) == sorted(NAMES)


def record(curve: list[float], stopped: int | None = None) -> dict[str, Any]:
    steps = [[10 * i, 0.0, x] for i, x in enumerate(curve, 1)]
    end = None if stopped else curve[-1]
    return {"curve": steps, "validation": end, "stopped_at": stopped}


def test_a_run_is_hopeless_beside_what_the_best_had_at_a_tenth():
    best = record([9, 8, 7, 6, 5, 4, 3, 2, 1, 0.5])
    other = record([9, 9, 9, 9, 9, 9, 9, 9, 9, 9])
    assert hopeless_at([other, best], 100, "lower") == (50, 9)
    assert hopeless_at([other, best], 100, "higher") == (50, 9)
    assert hopeless_at([record([9, 8, 7, 6, 5], stopped=50)], 100, "lower") is None
    assert hopeless_at([], 100, "lower") is None


def test_own_transformations():
    sgd = own("mine", optax.sgd(0.1))
    assert played(sgd, lambda run: 1.0, tune=3)[0].phase == "report"
    tuned = own("mine", lambda rates: optax.sgd(rates))
    assert len(played(tuned, lambda run: 1.0, tune=3)) == 4 + 3
    tx = tuned.build(0.5, {}, 10, 2)
    one = {"w": jnp.ones(())}
    updates, _ = tx.update(one, tx.init(one))
    assert float(updates["w"]) == pytest.approx(-0.05)  # a tenth of the peak, at first


@pytest.mark.parametrize(
    ("relaxations", "says"),
    [
        ([], "name two or more"),
        (["all_reduced"], "there is no relaxation"),
        (["gossip rank=4"], "has no option 'rank'"),
        (["diloco sync_every"], "must be OPTION=NUMBER"),
        (["diloco sync_every=often"], "must be OPTION=NUMBER"),
        (["diloco periods=often"], "there is no schedule 'often'"),
        (["sparta periods=qsr:peaks=2"], "has no period"),
        ({"mine": 3}, "must be the name of a relaxation"),
    ],
)
def test_methods_that_are_none(relaxations, says):
    with pytest.raises((ValueError, TypeError), match=says):
        methods(relaxations, TASK)


def test_one_more_at_both_ends():
    tried = list(itertools.product([0.1, 0.3, 0.9], [{}]))
    assert one_more(tried, (0.1, {}))[0] == pytest.approx(0.1 / 3)
    assert one_more(tried, (0.9, {}))[0] == pytest.approx(2.7)
