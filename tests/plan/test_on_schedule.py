"""A plan over a schedule of periods: means over a run, by its own program."""

from typing import Any

import optax
import pytest

import relaxjax
from relaxjax import periods, plan, schedule
from relaxjax._names import parse
from tests import helpers

STEPS, N = 60, 4
TABLE = periods.table([(0, 2), (20, 10)])  # ten meetings, then four
MODEL = plan.Model(params=helpers.problem(), compute=0.01)
NETWORK = plan.Network(workers=N, link=schedule.Link(1e-4, 1e6))


def ranked(**how: Any) -> dict[str, plan.Row]:
    found = plan.rank(MODEL, NETWORK, quality="unmeasured", **how)
    return {row.label: row for row in found.rows}


def test_costs_are_means_over_the_run():
    usual, found = ranked(), ranked(sync_every=TABLE, steps=STEPS)
    assert len(periods.meetings(TABLE, STEPS)) == 14
    for name in ("local_sgd", "diloco+quantize8", "sparse_loco", "slow_momentum"):
        each, on = usual[name].prediction, found[f"{name} on a schedule"].prediction
        assert on.nbytes == pytest.approx(14 / STEPS * 8 * each.nbytes)
        exchange = 8 * each.seconds - 7 * MODEL.compute
        mean = (14 * exchange + (STEPS - 14) * MODEL.compute) / STEPS
        assert on.seconds == pytest.approx(mean)
        assert on.memory == each.memory


@pytest.mark.long
def test_each_row_is_its_own_program_on_that_schedule():
    on = {"sync_every": TABLE, "steps": STEPS}
    rows = plan.rank(MODEL, NETWORK, quality="unmeasured", **on).rows
    timed = [row for row in rows if row.candidate.schedule]
    labels = [row.label for row in timed]
    assert sorted(set(labels)) == sorted(labels)
    assert len(timed) >= 12
    mesh = relaxjax.emulate(N)
    for row in timed:
        tx = plan.transformation(row, "data", optax.sgd(0.1), N)
        sent = relaxjax.wire_bytes(tx, helpers.problem(), mesh, steps=STEPS)
        if parse(row.candidate.relaxation).row.sends.kind == "models":
            assert sent / STEPS == pytest.approx(row.prediction.nbytes)
        elif "streaming" in row.label:  # laps are whole, and a multiple of fragments
            assert sent / STEPS == pytest.approx(row.prediction.nbytes, rel=0.1)
        assert "sync_every" in row.tx
        assert row.quality.name == "unmeasured"


def test_other_relaxations_are_as_without_it():
    usual, found = ranked(), ranked(sync_every=TABLE, steps=STEPS)
    for name in ("all_reduce", "gossip", "power_sgd rank=1", "desynced"):
        if name in usual:
            assert found[name].prediction == usual[name].prediction
    assert not {"asynchronous_diloco", "heloco"} & found.keys()
    assert not [name for name in found if "sync_every=" in name]


def test_a_number_is_the_period_of_all_that_have_one():
    usual, same, own = ranked(), ranked(sync_every=8), ranked(sync_every=12)
    assert same["local_sgd"].prediction == usual["local_sgd"].prediction
    assert same["local_sgd"].tx == usual["local_sgd"].tx
    assert "local_sgd sync_every=50" not in same
    row = own["local_sgd sync_every=12"]
    assert 'local_sgd("data", 12' in row.tx
    assert row.prediction.nbytes == pytest.approx(
        8 / 12 * usual["local_sgd"].prediction.nbytes
    )
    assert "12 steps" in row.candidate.why
    plan.transformation(row, "data", optax.sgd(0.1), N)


def test_asked_twice_of_one_model_each_is_its_own():
    first = ranked(sync_every=TABLE, steps=STEPS)["local_sgd on a schedule"]
    longer = ranked(sync_every=TABLE, steps=10 * STEPS)["local_sgd on a schedule"]
    assert longer.prediction.nbytes < first.prediction.nbytes


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sync_every": TABLE}, "rank: under a schedule .* say steps="),
        ({"sync_every": TABLE, "steps": 0}, "steps=0 must be a whole number"),
        ({"sync_every": TABLE, "steps": 1}, "sync_every meets never in steps=1"),
        ({"sync_every": 0}, "rank: sync_every=0 must be a whole number, 1 or more"),
    ],
)
def test_refuses_what_has_no_mean(how, message):
    with pytest.raises(ValueError, match=message):
        ranked(**how)
