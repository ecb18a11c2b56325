"""The bench of whole methods: what it reports follows from what it trained."""

import json

import numpy as np
import pytest

from relaxjax.bench import _later, _methods
from relaxjax.bench._methods import ENTRIES, Entry
from relaxjax.tasks import OPTIMIZERS, TASKS


def test_methods_stand_beside_their_parents(tmp_path):
    entries = (
        Entry("power_sgd", {"rank": 2}, optimizer="lamb"),
        Entry("all_reduce+quantize4+ef14@two_level", mesh=_methods._HOSTS),
        Entry("one_bit_lamb", {"freeze_step": 2}),
    )
    how = {"tasks": ["digits"], "entries": entries, "steps": 4, "seeds": 2}
    rows = _methods.methods(**how, out=str(tmp_path))["rows"]
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


def test_later_messages_stand_beside_all_reduce(tmp_path):
    few = tuple(e for e in _later.ENTRIES if e.label.endswith(" 2 workers)"))
    result = _later.later(entries=few, steps=10, out=str(tmp_path))
    parent, local = result["rows"]
    assert local["method"] == "local_sgd (sync_every=10, 2 workers)"
    assert (parent["share"], local["share"]) == (1, 0.1)
    assert local["worse"][1:] == [None, None]
    assert json.loads((tmp_path / "later.json").read_text())["target"] == 0.02


@pytest.mark.parametrize(
    "entry", [*ENTRIES, *_later.ENTRIES], ids=lambda entry: entry.label
)
def test_every_entry_builds(entry):
    task = TASKS["digits"](0)
    assert entry.parent in OPTIMIZERS
    assert _methods._transformation(entry, entry.parent, task, 100)
