"""Methods under a controller, in studies: their record is the run of their table."""

from typing import Any

import optax
import pytest

import relaxjax
from relaxjax import compare, controllers, periods
from tests.compare.study.test_seeds_at_once import task

ADA = "local_sgd periods=ada_comm:start=4"
ACCORDION = "power_sgd ranks=accordion:low=1,high=2,every=4 min_compression=0"
NUMBERS = ("curve", "validation", "test", "bytes_per_step")


def run(folder: Any, relaxations: Any, **how: Any) -> list[dict[str, Any]]:
    how = {"seeds": 1, "tune": 1, "workers": 2, "steps": 24} | how
    return compare.Study(task, relaxations, **how).run(folder).records()


def by_name(records: Any) -> dict[str, dict[str, Any]]:
    return {r["method"]: r for r in records if r["phase"] == "report"}


@pytest.mark.long
def test_periods_decided_in_the_run_are_its_table(tmp_path):
    (found,) = by_name(run(tmp_path / "a", [ADA])).values()
    rows = [tuple(row) for row in found["table"]]
    assert len(rows) > 1
    assert rows[0] == (0, 4)
    text = ",".join(f"{step}={period}" for step, period in rows)
    again = by_name(run(tmp_path / "b", [f"local_sgd periods=table:{text}"]))
    (same,) = again.values()
    assert {k: same[k] for k in NUMBERS} == {k: found[k] for k in NUMBERS}


@pytest.mark.long
def test_seconds_are_those_of_what_was_decided(tmp_path):
    """Before the first run for the report they are those of the first level."""
    run(tmp_path / "a", [ADA, ACCORDION], compute=1e-6)
    found = compare.Results(tmp_path / "a")
    rows = {r["method"]: r["table"] for r in found.records() if r["phase"] == "report"}
    text = ",".join(f"{step}={period}" for step, period in rows[ADA])
    same = {
        f"local_sgd periods=table:{text}": ADA,
        "the same": ACCORDION,
    }
    study: dict[str, Any] = {name: name for name in same if " periods" in name}
    study["the same"] = ranked({s: x for s, x in rows[ACCORDION]})
    run(tmp_path / "b", study, compute=1e-6)
    said = compare.Results(tmp_path / "b").study["seconds"]
    for other, name in same.items():
        assert found.study["seconds"][name] == said[other], name


def ranked(table: dict[int, Any]) -> Any:
    return lambda rate: optax.chain(
        relaxjax.power_sgd("data", rank=table, highest=2, min_compression=0),
        controllers.norms_of_sums(4),
        optax.adamw(rate, weight_decay=1e-4),
    )


@pytest.mark.long
def test_ranks_decided_in_the_run_are_its_table(tmp_path):
    (found,) = by_name(run(tmp_path / "a", [ACCORDION])).values()
    rows = [tuple(row) for row in found["table"]]
    assert len(rows) > 2, "the level changes twice at least"
    again = {"the same": ranked({s: x for s, x in rows})}
    (same,) = by_name(run(tmp_path / "b", again)).values()
    assert {k: same[k] for k in NUMBERS} == {k: found[k] for k in NUMBERS}


@pytest.mark.long
def test_bytes_of_phases_are_those_of_the_run(tmp_path):
    """`wire_bytes` without `steps=` is of the first long phase, which is a warm-up."""
    names = ["power_sgd rank=1 min_compression=0 start_after=12"]
    (found,) = by_name(run(tmp_path, names)).values()
    assert found["bytes_per_step"] == (12 * 32 + 12 * 24) / 24


@pytest.mark.long
def test_a_controller_of_ones_own(tmp_path):
    rule = controllers.controller(
        lambda memory, level, told: (memory, 2 if told["loss"] < 10 else 3),
        start=3,
        reads=["loss"],
    )

    def build(rate: Any, table: Any) -> Any:
        return optax.chain(
            optax.adamw(rate), relaxjax.local_sgd("data", periods.table(table))
        )

    mine = controllers.Conducted(rule, build)
    found = by_name(run(tmp_path, {"all": "all_reduce", "mine": mine}))["mine"]
    assert [period for _, period in found["table"]] == [3, 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("local_sgd periods=ada_comm", "ada_comm needs start, as in ada_comm:start=16"),
        ("local_sgd periods=ada_comm:start=x", "'start=x' must be NAME=NUMBER"),
        (
            "local_sgd periods=ada_comm:start=4,up=2",
            "ada_comm has no 'up'; it has start",
        ),
        ("local_sgd periods=ada_comm:start=0", "start=0 must be a whole number"),
        ("all_reduce periods=ada_comm:start=4", "'all_reduce' has no period"),
        (
            "power_sgd ranks=dion:low=1",
            "there is no controller 'dion'; there is accord",
        ),
        ("power_sgd ranks=accordion:low=1,high=2", "accordion needs every"),
        ("power_sgd ranks=accordion:low=1,high=2,every=0", "every=0 must be a whole"),
        ("local_sgd ranks=accordion:low=1,high=2,every=4", "takes no ranks="),
        ("power_sgd rank=2 ranks=table:0=4", "and rank=2 both say it"),
        ("power_sgd ranks=table:0=4,0=5", "a step stands twice"),
        ("power_sgd rank=2 ranks=accordion:low=1,high=2,every=4", "both"),
    ],
)
def test_what_is_no_controller_is_refused(text, says):
    with pytest.raises(ValueError, match=says):
        compare.Study(task, [text], seeds=1, tune=1, workers=2)


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize("text", ["gossip", "slow_momentum", "diloco+quantize8"])
def test_other_methods_meet_when_their_table_says(text, tmp_path):
    study = [f"{text} periods=ada_comm:start=3"]
    (found,) = by_name(run(tmp_path, study)).values()
    assert [tuple(row) for row in found["table"]][:2] == [(0, 3), (6, 2)]


def test_steps_that_are_counted_otherwise_are_refused(tmp_path):
    def build(rate: Any, table: Any) -> Any:
        tx = relaxjax.local_sgd("data", periods.table(table))
        whole: Any = optax.MultiSteps(optax.chain(optax.adamw(rate), tx), 2)
        return whole.gradient_transformation()

    mine = controllers.Conducted(controllers.ada_comm(start=4), build)
    with pytest.raises(ValueError, match="after step 4 no period begins"):
        run(tmp_path, {"mine": mine})
