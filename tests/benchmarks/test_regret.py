"""The planner's choice over measured steps, made by a rule that it can find."""

import json

import pytest

from benchmarks.network.problem import task
from benchmarks.planning import regret
from relaxjax.plan import Model, Network
from relaxjax.plan._candidates import candidates
from relaxjax.plan._predict import predict

LABELS = ("all_reduce", "all_reduce@ring", "all_reduce+quantize8@two_shot", "gossip")
KNOWN = regret.Known(1.1, 2e-3, 1.2, 1e-3, 4e-9, {"quantize8": 5e-9, "": 5e-9})


def measured(folder, width: int, rates=(20.0, 50.0, 200.0, 1000.0)) -> str:
    """A folder of the network bench, whose times follow the rule."""
    model = Model(params=task(width, 1).params, compute=0.02)
    blocks = [
        {"rate": rate, "round": 0, "method": "alone", "seconds": 0.02} for rate in rates
    ]
    for rate in rates:
        network = KNOWN.network(rate, 4)
        for c in candidates(Network(workers=4)):
            if c.label in LABELS:
                seconds = predict(c, model, network, 8 * 2**20).seconds
                row = {"rate": rate, "round": 0, "method": c.label, "seconds": seconds}
                blocks.append(row)
    told = {"conditions": {"width": width, "layers": 1, "hosts": 4}, "blocks": blocks}
    folder.mkdir()
    (folder / "network_steps.json").write_text(json.dumps(told))
    return str(folder)


@pytest.mark.slow
def test_what_follows_the_rule_is_found(tmp_path):
    folders = [measured(tmp_path / str(w), w) for w in (16, 32)]
    found = regret.regret(folders=folders, out=str(tmp_path))
    for way, other in zip(found["ways"], (32, 16), strict=True):
        assert len(way["seen"]) == len(way["unseen"]) == 4
        assert {row["model"] for row in way["unseen"]} == {f"1 layers of {other}"}
        summary = way["summary"]["unseen"]
        assert summary["regret_worst"] == pytest.approx(1.0)
        assert summary["error"] < 1e-3
        assert summary["plain_worst"] > 1.1
        assert way["fit"]["share"] == pytest.approx(1.1, rel=1e-3)
        assert way["fit"]["copy"] == pytest.approx(4e-9, rel=1e-2)
    assert (tmp_path / "regret.json").exists()


def test_of_one_model_half_of_the_rates_is_told(tmp_path):
    told, rest = regret.split(regret.cells([measured(tmp_path / "a", 16)]))
    assert [cell.rate for cell in told] == [20.0, 200.0]
    assert [cell.rate for cell in rest] == [50.0, 1000.0]


def test_a_wrong_choice_costs_what_was_measured(tmp_path):
    cell = regret.cells([measured(tmp_path / "a", 16)])[0]
    slow = {label: 9.0 for label in LABELS} | {"gossip": 3.0}
    found = regret.chosen(
        regret.Cell(model=cell.model, rate=cell.rate, hosts=4, seconds=slow, name="a"),
        KNOWN,
    )
    assert found["best"] == "gossip"
    assert found["regret"] == (1.0 if found["choice"] == "gossip" else 3.0)
    assert found["plain"] == 3.0


def test_folders_without_steps(tmp_path):
    with pytest.raises(ValueError, match=r"network_steps\.json: run python -m bench"):
        regret.cells([tmp_path])
    with pytest.raises(ValueError, match="two cells or more"):
        regret.split(regret.cells([measured(tmp_path / "a", 16, rates=(20.0,))]))


def test_some_may_be_left_out(tmp_path):
    (cell, *_) = regret.cells([measured(tmp_path / "a", 16)], ["all_reduce@", "gossip"])
    assert set(cell.seconds) == {"all_reduce", "all_reduce+quantize8@two_shot"}
