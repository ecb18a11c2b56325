"""Decisions as data: dwell, readings that are not numbers, files, replay."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from relaxjax import controllers
from relaxjax.controllers import Decision

NAN = float("nan")


def by_loss(dwell: int = 0) -> controllers.Controller:
    """Level 1 below a loss of 2, else 4."""
    return controllers.controller(
        lambda memory, level, told: (memory + 1, 1 if told["loss"] < 2 else 4),
        start=4,
        reads=["loss"],
        memory=0,
        dwell=dwell,
    )


def told(controller: controllers.Controller, losses: Any, every: int = 10) -> Any:
    record = controller.init()
    for k, loss in enumerate(losses, 1):
        record = controller.update(record, k * every, {"loss": loss})
    return record


def test_a_level_stays_for_its_dwell():
    """The first change may come at once: nothing was decided before it."""
    record = told(by_loss(dwell=30), [1.0, 3.0, 3.0, 3.0, 1.0, 1.0, 1.0])
    assert record.table == [(0, 4), (10, 1), (40, 4), (70, 1)]
    whys = [row.why for row in record.decisions]
    assert whys == ["start", "rule", *["dwell"] * 2, "rule", *["dwell"] * 2, "rule"]


@pytest.mark.parametrize("odd", [NAN, float("inf"), -float("inf")])
def test_a_reading_that_is_no_number_leaves_the_last_decision(odd):
    record = told(by_loss(), [1.0, odd, 1.0, 3.0, odd])
    assert record.table == [(0, 4), (10, 1), (40, 4)]
    assert record.decisions[2].why == record.decisions[5].why == f"loss is {odd}"
    assert record.memory == 3  # the rule saw three readings


def test_the_name_of_what_is_no_number_is_that_of_the_leaf():
    rule = controllers.accordion(1, 2)
    record = rule.update(rule.init(), 10, {"norms": {"w": 1.0, "b": NAN}})
    assert record.decisions[-1][1:3] == (2, "norms/b is nan")


def test_arrays_of_any_kind_are_the_same_readings():
    kinds = (np.float32(1.5), np.asarray(1.5), 1.5)
    records = [told(by_loss(), [x]) for x in kinds]
    assert records[0] == records[1] == records[2]
    assert type(records[0].decisions[1].readings["loss"]) is float


def test_equal_readings_give_equal_records():
    rng = np.random.default_rng(0)
    losses = np.where(rng.random(200) < 0.1, NAN, rng.normal(2, 1, 200))
    several = [told(by_loss(dwell=40), losses) for _ in range(3)]
    assert len({str(record) for record in several}) == 1
    assert len(several[0].table) > 3


def test_a_file_holds_the_decisions_and_repeats_the_controller(tmp_path):
    record = told(by_loss(dwell=20), [1.0, NAN, 3.0, 0.1 + 0.2, 3.0])
    record.save(tmp_path / "run.json")
    found = controllers.load(tmp_path / "run.json")
    assert str(found) == str(record.decisions)  # NaN is not equal to itself
    assert controllers.table_of(found) == record.table
    again = by_loss(dwell=20).replayed(found)
    assert str(again) == str(record)
    on = [x.update(r, 60, {"loss": 1.0}) for x, r in ((by_loss(20), again),)]
    assert on[0].level == by_loss(20).update(record, 60, {"loss": 1.0}).level
    kept = json.loads((tmp_path / "run.json").read_text())["table"]
    assert kept == [list(row) for row in record.table]


@pytest.mark.parametrize(
    "rule",
    [
        controllers.ada_comm(cast(int, np.int64(4))),
        controllers.thresholds("loss", [*np.array([4, 8])], up=0.7, down=0.3),
        controllers.controller(
            lambda m, x, _: (m, {"a": cast(int, x)}), start=2, reads=["loss"]
        ),
    ],
    ids=["start", "levels", "by name"],
)
def test_numbers_of_numpy_are_kept_in_a_file(rule, tmp_path):
    record = rule.update(rule.init(), np.int32(10), {"loss": np.float32(2.0)})
    record.save(tmp_path / "run.json")
    assert tuple(controllers.load(tmp_path / "run.json")) == record.decisions


def test_decisions_that_cannot_be_written_leave_those_before(tmp_path, monkeypatch):
    told(by_loss(), [1.0]).save(tmp_path / "run.json")
    before = controllers.load(tmp_path / "run.json")

    def half(path, text):
        path.write_bytes(text[: len(text) // 2].encode())
        raise OSError("no space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", half)
        with pytest.raises(OSError, match="no space"):
            told(by_loss(), [1.0, 3.0]).save(tmp_path / "run.json")
    assert controllers.load(tmp_path / "run.json") == before


def test_levels_by_name_are_kept_in_a_file(tmp_path):
    rule = controllers.accordion(1, 2)
    record = rule.update(rule.init(), 10, {"norms": {"w": 1.0, "b": 3.0}})
    record = rule.update(record, 20, {"norms": {"w": 1.0, "b": 1.0}})
    record.save(tmp_path / "run.json")
    assert rule.replayed(controllers.load(tmp_path / "run.json")) == record
    assert record.table == [(0, 2), (10, {"b": 2, "w": 2}), (20, {"b": 2, "w": 1})]


def test_a_controller_with_other_numbers_is_told_apart():
    record = told(by_loss(dwell=30), [1.0, 3.0])
    with pytest.raises(ValueError, match=r"at step 20 .* says 4, and 1 was recorded"):
        by_loss().replayed(record.decisions)


@pytest.mark.parametrize("step", [0, 10, 9, 10.5])
def test_steps_rise(step):
    record = told(by_loss(), [1.0])
    with pytest.raises(ValueError, match="must be a whole number, 11 or more"):
        by_loss().update(record, step, {"loss": 1.0})


def test_a_missing_reading_is_named():
    with pytest.raises(
        ValueError, match="the reading 'loss' is missing; it reads loss"
    ):
        by_loss().update(by_loss().init(), 1, {"norm": 1.0})
    with pytest.raises(ValueError, match="dwell=-1 must be a whole number, 0 or more"):
        by_loss(dwell=-1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as decisions"),
        ("{}", "holds no decisions: it has no 'decisions'"),
        ('{"decisions": [[0, 4, "start"]]}', "holds no decisions"),
        ('{"decisions": [[0, "4", "start", {}]]}', "the levels"),
        ('{"decisions": [[0, {"w": 1.5}, "start", {}]]}', "the levels"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, text, message):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        controllers.load(tmp_path / "run.json")
    with pytest.raises(ValueError, match="cannot be read as decisions"):
        controllers.load(tmp_path / "none.json")


def test_rows_of_a_table_are_changes():
    rows = [Decision(s, x, "rule", {}) for s, x in ((0, 1), (5, 1), (9, 2), (12, 1))]
    assert controllers.table_of(rows) == [(0, 1), (9, 2), (12, 1)]
