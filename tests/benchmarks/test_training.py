"""The studies of training: what they report follows from what was trained."""

import json
import math

import numpy as np
import pytest

from benchmarks.report import Run
from benchmarks.training import remembered, studies, study
from relaxjax.compare.study._methods import methods
from relaxjax.tasks import OPTIMIZERS, digits, task_of

TABLES = {
    "quality": studies.QUALITY,
    "screen": studies.SCREENED,
    "frontier": studies.FRONTIER,
    "recent": studies.RECENT,
    "methods": studies.METHODS,
    "later": studies.LATER,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_names_relaxations_and_options_that_exist(table):
    task = digits(0)
    for parent, names in table.relaxations.items():
        assert parent in OPTIMIZERS
        assert len(methods(names, task)) == len(names)


def test_all_that_a_plan_ranks_can_be_trained():
    names = studies.ranked().relaxations["adamw"]
    assert len(methods(names, digits(0))) == len(names) > 50
    chosen = studies.ranked(["diloco", "gossip@ring"])
    assert set(chosen.relaxations["adamw"]) <= set(names)
    with pytest.raises(ValueError, match=r"method must be one of .* got 'nothing'"):
        studies.ranked(["nothing"])


def test_a_task_after_another_optimizer():
    plain, task = digits(3), study.after(digits, "momentum", 3)
    assert task.optimizer is OPTIMIZERS["momentum"].make
    assert task.learning_rate == 10 * plain.learning_rate
    assert task_of(task).optimizer is task.optimizer  # also with validation data


@pytest.mark.parametrize(
    ("better", "metrics", "base", "worst"),
    [("higher", [0.9, 0.8], [1.0, 1.0], 0.15), ("lower", [2.2, 2.0], [2, 2], 0.05)],
)
def test_worse_is_relative_and_positive(better, metrics, base, worst):
    mean, low, high = study.worse(metrics, base, better)
    assert mean == pytest.approx(worst)
    half = 12.7062 * 0.1 / 2  # Student's t, one degree of freedom, pairs 0.1 apart
    assert (low, high) == pytest.approx((worst - half, worst + half), rel=1e-4)
    assert math.isnan(study.worse(metrics[:1], base[:1], better)[1])
    assert math.isnan(study.worse([None, 1.0], base, better)[0])


def row(name: str, share: float, worse: float, **how: object) -> study.Row:
    same = {"task": "digits", "parent": "adamw", "diverged": False}
    return {**same, "name": name, "share": share, "worse": [worse, 0, 0], **how}


def test_the_best_within_a_budget_is_judged():
    rows = [
        row("all_reduce", 1.0, 0.0),
        row("cheap", 1 / 400, 0.03),
        row("good", 1 / 32, 0.004),
        row("gone", 1 / 500, math.nan, diverged=True),
    ]
    assert study.verdicts(rows, {32: 0.01, 400: 0.02, 1000: 0.1}) == [
        "digits 1/32: 1% met: +0.40% by good after adamw",
        "digits 1/400: 2% missed: +3.00% by cheap after adamw",
        "digits 1/1000: nothing fits",
    ]


def test_evidence_is_written_from_records(tmp_path, monkeypatch):
    """And what has been measured before stays."""
    before = {"conditions": [], "rows": {"x": {"digits": {"worse": 1.0, "seeds": 1}}}}
    (tmp_path / "evidence.json").write_text(json.dumps(before))
    kept = row("gossip@ring", 1.0, 0.25, metrics=[0.5, 0.5])
    lost = row("diloco", 0.1, math.nan, metrics=[None, 0.5], diverged=True)
    base = row("all_reduce", 1.0, 0.0, metrics=[0.7, 0.7])
    monkeypatch.setattr(study, "_rows", lambda *_: [base, kept, lost])
    monkeypatch.setattr(studies, "ranked", lambda labels: studies.QUALITY)
    found = study.evidence(method=None, steps=4, seeds=2, tune=1, out=str(tmp_path))
    assert found["rows"] == {
        **before["rows"],
        "gossip@ring": {"digits": {"worse": 0.25, "seeds": 2}},
        "diloco": {"digits": {"worse": study.DIVERGED, "seeds": 2}},
    }
    assert found["conditions"][0]["all_reduce"] == {"digits": [0.7, 0.7]}


@pytest.mark.slow
def test_a_study_is_run_judged_and_reported(tmp_path, monkeypatch):
    """Of digits, after two optimizers."""
    table = studies.Table(
        {"digits": digits},
        {"momentum": ("power_sgd rank=2",), "adamw": ("local_sgd sync_every=2",)},
        steps=4,
        budgets={1: 0.5, 1000: 0.5},
    )
    run = Run("methods", tmp_path)
    result = study._whole(run, table, None, None, 2, 1)
    rows = result["rows"]
    assert [r["name"] for r in rows] == [
        "all_reduce",
        "power_sgd rank=2",
        "all_reduce",
        "local_sgd sync_every=2",
    ]
    assert [r["share"] for r in rows][::2] == pytest.approx([1.0, 1.0], abs=1e-3)
    assert rows[1]["share"] < 0.2
    assert rows[3]["share"] == pytest.approx(0.5, abs=1e-3)
    assert rows[0]["rate"] == 10 * rows[2]["rate"]
    for at in (1, 3):
        pairs = 1 - np.divide(rows[at]["metrics"], rows[at - 1]["metrics"])
        assert rows[at]["worse"][0] == pytest.approx(pairs.mean())
    saved = json.loads((tmp_path / "methods.json").read_text())
    assert saved["rows"] == rows
    assert (tmp_path / "methods-digits-adamw" / "report.html").exists()


def test_a_state_that_does_not_meet_shows_at_each_worker():
    """Only `desynced` brings z together: others are right at the consensus alone."""
    found = {
        name: remembered.trained(tx, 200) for name, tx in remembered.methods().items()
    }
    met, *parted = found.values()
    assert met["at worker 0"] == pytest.approx(met["at the consensus"], abs=1e-6)
    assert met["spread of z"] == 0
    for each in parted:
        assert each["at worker 0"] > max(1, 2 * each["at the consensus"])
        assert each["spread of z"] > 10


def test_a_loss_above_the_optimum_is_that_of_the_mean_over_workers():
    tx = remembered.methods()["gossip on a ring"]
    params = np.array([1.0, -2.0, 0.5], np.float32)
    found = remembered.above(params, tx.init(params))
    apart = params - remembered.TARGETS
    least = remembered.TARGETS - remembered.TARGETS.mean(0)
    losses = [np.mean(np.sum(x**2, axis=1)) / 2 for x in (apart, least)]
    assert found == pytest.approx(losses[0] - losses[1], rel=1e-5)
