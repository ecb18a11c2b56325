"""What makes a comparison unfair is said in words; a fair one has no remarks."""

from collections.abc import Callable
from typing import Any

import pytest

from relaxjax.compare.kept._fairness import remarks
from tests.compare.studies import records, run, study

OF = study(["all_reduce", "power_sgd", "local_sgd"])
Records = list[dict[str, Any]]


def without(runs: Records, count: int, **fields: Any) -> Records:
    """Runs but for the first few with these fields."""
    found = [one for one in runs if all(one[k] == v for k, v in fields.items())]
    return [one for one in runs if one not in found[:count]]


UNFAIR: dict[str, tuple[Callable[[Records], Records], str]] = {
    "a report seed in tuning": (
        lambda runs: [
            *(one | {"seed": 102} if one["phase"] == "tune" else one for one in runs)
        ],
        "Seeds that report were also used for tuning: 102",
    ),
    "one tuning run less": (
        lambda runs: without(runs, 1, method="power_sgd", phase="tune", seed=1),
        "different numbers of runs: all_reduce 3, power_sgd 2, local_sgd 3",
    ),
    "one tuning run more": (
        lambda runs: [*runs, run("local_sgd", 2, phase="tune")],
        "different numbers of runs: all_reduce 3, power_sgd 3, local_sgd 4",
    ),
    "an untuned baseline": (
        lambda runs: without(runs, 3, method="all_reduce", phase="tune"),
        "different numbers of runs: all_reduce 0, power_sgd 3, local_sgd 3",
    ),
    "a report that is older than its tuning": (
        lambda runs: [
            one | {"learning_rate": 0.001}
            if (one["method"], one["phase"]) == ("power_sgd", "report")
            else one
            for one in runs
        ],
        "power_sgd is reported at 0.001, although 0.003 was better in tuning",
    ),
    "test data seen": (
        lambda runs: [*runs[:-1], runs[-1], runs[0] | {"test": 0.9}],
        "Tuning runs of all_reduce have a test metric",
    ),
    "the best rate at the edge": (
        lambda runs: [one for one in runs if one["learning_rate"] < 0.009],
        "rate of power_sgd is the largest that was tried, 0.003",
    ),
    "a report run missing": (
        lambda runs: without(runs, 2, method="local_sgd", phase="report"),
        "The study is not finished: of 3 report seeds, local_sgd 1",
    ),
}


def test_a_fair_study_has_no_remarks():
    assert remarks(OF, records(OF)) == []


@pytest.mark.parametrize(("change", "words"), UNFAIR.values(), ids=UNFAIR)
def test_what_is_unfair_is_said(change, words):
    said = remarks(OF, change(records(OF)))
    assert any(words in sentence for sentence in said), said


def test_a_missing_prediction_is_said():
    of = OF | {"seconds": {k: v for k, v in OF["seconds"].items() if k != "power_sgd"}}
    assert remarks(of, records(of)) == [
        "There is no prediction of seconds for power_sgd."
    ]
