"""The bench of whole methods: what it reports follows from what it trained."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.report import Run
from benchmarks.training import local_updates as _local_updates
from benchmarks.training import methods as _methods
from benchmarks.training.methods import ENTRIES, Entry, compare
from relaxjax.tasks import OPTIMIZERS, TASKS


@pytest.mark.slow
def test_methods_stand_beside_their_parents(tmp_path):
    entries = (
        Entry("power_sgd", {"rank": 2}, optimizer="lamb"),
        Entry("all_reduce+quantize4+ef14@two_level", mesh=_methods._HOSTS),
        Entry("one_bit_lamb", {"freeze_step": 2}),
    )
    tasks = {"digits": TASKS["digits"]}
    run = Run("methods", tmp_path)
    rows = compare(run, tasks, entries, steps=4, seeds=2)["rows"]
    labels = [row["method"] for row in rows]
    assert labels[:2] == ["all_reduce"] * 2  # after LAMB and after AdamW
    assert labels[2] == "power_sgd (rank=2)"
    assert [row["parent"] for row in rows] == ["lamb", "adamw", "lamb", "adamw", "lamb"]
    parents = {row["parent"]: row for row in rows[:2]}
    for row in rows:
        gaps = 1 - np.divide(row["metrics"], parents[row["parent"]]["metrics"])
        assert row["worse"][0] == pytest.approx(gaps.mean(), abs=1e-12)
    shares = [row["share"] for row in rows]
    assert shares[:2] == [1, 1]
    assert shares[2] < 0.5
    assert 0.5 < shares[4] < 0.75  # half of the run is exact
    saved = json.loads((tmp_path / "methods.json").read_text())
    assert saved["conditions"]["steps"] == {"digits": 4}


@pytest.mark.slow
def test_a_parent_counts_by_its_best_rate(tmp_path):
    entry = Entry("local_sgd", {"sync_every": 2}, learning_rate=0.03)
    rates = {"adamw": [1e-9, 0.03], "muon": [0.1]}
    run, tasks = Run("methods", tmp_path), {"digits": TASKS["digits"]}
    result = compare(run, tasks, [entry], rates=rates, steps=4, seeds=1)
    idle, best, local = result["rows"]
    assert [row["method"] for row in result["rows"]] == [
        "all_reduce (rate 1e-09)",
        "all_reduce (rate 0.03)",
        "local_sgd (sync_every=2, rate 0.03)",
    ]
    assert best["metrics"] > idle["metrics"]  # accuracies
    assert best["worse"][0] == 0 < idle["worse"][0]
    gap = 1 - local["metrics"][0] / best["metrics"][0]
    assert local["worse"][0] == pytest.approx(gap, abs=1e-12)
    assert result["conditions"]["rates"] == rates


@pytest.mark.parametrize(("metric_name", "best"), [("accuracy", 2), ("bits", 1)])
def test_a_parent_that_diverged_is_never_the_best(metric_name, best):
    runs = [{"metric_name": metric_name, "metrics": [m]} for m in (np.nan, 1, 2)]
    assert min(runs, key=_methods._badness)["metrics"] == [best]


@pytest.mark.slow
def test_an_entry_has_its_own_peak_rate():
    task = TASKS["digits"](0)

    def first_updates(entry):
        tx = _methods._transformation(entry, task, 100)
        ones = jax.tree.map(jnp.ones_like, task.params)

        def run(params):
            return tx.update(ones, tx.init(params), params)[0]

        one = jax.vmap(run, axis_name="data", axis_size=1, in_axes=None)
        return jax.tree.leaves(one(task.params))

    own, tenfold = (
        Entry("all_reduce", optimizer="momentum", learning_rate=rate)
        for rate in (None, 100 * task.learning_rate)
    )
    for x, y in zip(first_updates(own), first_updates(tenfold), strict=True):
        np.testing.assert_allclose(10 * x, y, rtol=1e-5)


@pytest.mark.slow
def test_local_updates_messages_stand_beside_all_reduce(tmp_path, capsys, monkeypatch):
    few = [
        e for e in _local_updates.ENTRIES if e.name == "local_sgd" and e.mesh.size == 2
    ]
    monkeypatch.setattr(_local_updates, "ENTRIES", few[:1])
    monkeypatch.setattr(_local_updates, "RATES", {"adamw": [0.01]})
    result = _local_updates.local_updates(steps=10, out=str(tmp_path))
    parent, local = result["rows"]
    assert "2 workers" in local["method"]
    assert (parent["share"], local["share"]) == (1, 0.2)
    assert local["worse"][1:] == [None, None]
    assert json.loads((tmp_path / "later.json").read_text())["target"] == 0.02
    assert "1/400: nothing fits" in capsys.readouterr().out


def test_every_parent_of_local_updates_messages_is_searched():
    assert {entry.parent for entry in _local_updates.ENTRIES} == set(
        _local_updates.RATES
    )
    assert all(entry.learning_rate for entry in _local_updates.ENTRIES)


def test_the_best_row_within_the_budget_is_judged():
    rows = [
        {"method": "near", "share": 0.02, "worse": [0.0]},
        {"method": "good", "share": 0.01, "worse": [0.015]},
        {"method": "bad", "share": 0.002, "worse": [0.3]},
    ]
    said = _local_updates.verdict(rows, 100, 0.02)
    assert said == "1/100: 2% met: +1.50% by good"
    assert _local_updates.verdict(rows, 400, 0.01) == "1/400: 1% missed: +30.00% by bad"


@pytest.mark.few(13)
@pytest.mark.parametrize(
    "entry", [*ENTRIES, *_local_updates.ENTRIES], ids=lambda entry: entry.label
)
def test_every_entry_builds(entry):
    task = TASKS["digits"](0)
    assert entry.parent in OPTIMIZERS
    assert _methods._transformation(entry, task, 100)
