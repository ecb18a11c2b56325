"""The network bench: what it makes of seconds, and a run over loopback."""

import json
import math
import os

import pytest

from benchmarks.network import audit as _network_audit
from benchmarks.network import forecast as _network_forecast
from benchmarks.network import methods as _network_methods
from benchmarks.network import report
from benchmarks.network import study as _network
from benchmarks.network.curves import steps_to
from benchmarks.network.methods import ALONE, DDP, METHODS, RELAXJAX, Method
from benchmarks.network.problem import Shape
from benchmarks.network.slow_host import Quota
from benchmarks.report import Run
from relaxjax.hosts import Namespaces

OURS = Method(system=RELAXJAX, name="ours")
SLOW = Method(system=RELAXJAX, name="slow")
LATE = Method(system=RELAXJAX, name="ours", options={"start_after": 2})
HOOK = Method(system=DDP, name="power_sgd", options={"rank": 1})
OTHER = Method(system=DDP, name="fp16")
BARE = Method(system=RELAXJAX, name=ALONE)
PLAIN = Method(system=RELAXJAX, name="all_reduce"), Method(system=DDP, name="fp32")
ROWS = [OURS, SLOW, LATE, HOOK, OTHER, BARE, *PLAIN]


def blocks(rate=20.0, **steps):
    """Blocks of two rounds, the second of which is twice as slow."""
    seconds = {m.label: steps.get(m.name, 1.0) for m in ROWS}
    return [
        {
            "rate": rate,
            "round": turn,
            "method": label,
            "seconds": s * (1 + turn),
            "busy": 0.1,
            "sent": 5,
        }
        for turn in range(2)
        for label, s in seconds.items()
    ]


def test_steps_to_a_loss_are_read_off_straight_lines():
    curve = [[0, 4.0, 4.0], [10, 3.0, 3.0], [20, 2.5, 2.0]]
    assert steps_to(curve, 2.5) == 15
    assert steps_to(curve, 3.0) == 10
    assert steps_to(curve, 5.0) == 0
    assert steps_to(curve, 1.0) == math.inf


def test_ratios_are_of_the_same_round():
    found = report.paired(blocks(ours=0.5, fp16=2.0), 20.0, OURS.label, OTHER.label)
    assert (found.median, found.low, found.high, found.pairs) == (0.25, 0.25, 0.25, 2)


def test_the_verdict_is_of_the_best_of_both():
    result = {
        "blocks": blocks(ours=0.5, slow=2.0, power_sgd=1.0, fp16=3.0, fp32=10.0),
        "steps_to_loss": {
            OURS.label: 40,
            SLOW.label: 9,
            HOOK.label: 30,
            "DDP fp16": 25,
        },
    }
    found = report.verdict(result, ROWS, 20.0)
    assert found is not None
    assert found["time"]["relaxation"] == SLOW.label
    assert found["time"]["hook"] == HOOK.label
    assert found["time"]["ratio"] == pytest.approx([9 * 2 / 30] * 3)
    assert found["time"]["target"] == 0.85
    # Two of its steps are in full, and take ten times as long.
    in_full = found["time_in_full"]
    assert in_full["seconds"] == pytest.approx([1.5 * 18, 1.5 * (28 + 20)])
    assert in_full["ratio"] == pytest.approx([18 / 48] * 3)


def test_no_verdict_without_hooks():
    result = {"blocks": blocks(), "steps_to_loss": {OURS.label: 4}}
    assert report.verdict(result, ROWS, 20.0) is None


def test_the_best_two_of_each_system_go_on():
    seconds = blocks(ours=0.5, slow=2.0, power_sgd=1.0, fp16=3.0)
    few = _network.contenders(ROWS, seconds, 20.0, {}, best=1)
    assert [m.label for m in few] == [ALONE, OURS.label, HOOK.label]
    needed = {SLOW.label: 1.0, OURS.label: 100.0, OTHER.label: 5.0}
    few = _network.contenders(ROWS, seconds, 20.0, needed, best=1)
    assert [m.label for m in few] == [ALONE, SLOW.label, OTHER.label]


def test_the_stated_loss_is_one_that_all_reach():
    lines = {
        OURS.label: [[0, 4.0, 4.0], [10, 2.0, 2.0]],
        HOOK.label: [[0, 4.0, 4.0], [10, 3.0, 3.0]],
    }
    stated, needed = report.steps_needed(ROWS, lines, None)
    assert (stated, needed) == (3.0, {OURS.label: 5.0, HOOK.label: 10.0})
    assert report.steps_needed(ROWS, {}, None) == (None, {})


def test_the_simulator_finds_back_what_made_the_seconds():
    rows = [BARE, OURS, SLOW]
    local = Method(system=RELAXJAX, name="local", period=4, options={"sync_every": 4})
    stated = {OURS.label: 1e6, SLOW.label: 2e6, local.label: 2.5e5}
    codec = {OURS.label: 0.1, SLOW.label: 0.0, local.label: 0.02}
    seconds = {
        rate: {ALONE: 0.3}
        | {n: 0.3 + codec[n] + b / (0.9 * rate * 125e3) for n, b in stated.items()}
        for rate in (20.0, 50.0, 200.0)
    }
    found = _network_forecast.forecast([*rows, local], seconds, stated, (20.0, 200.0))
    assert found["fit"]["share"] == pytest.approx(0.9)
    assert found["held_out"][50.0]["error"] < 1e-6
    assert found["held_out"][50.0]["tau"] == 1.0


def test_tau_is_of_pairs_that_are_near():
    measured = {"a": 1.0, "b": 1.5, "c": 9.0}
    assert _network_forecast.tau({"a": 2.0, "b": 1.0, "c": 0.0}, measured) == -1.0
    assert _network_forecast.tau({"a": 1.0, "b": 2.0, "c": 0.0}, measured) == 1.0


@pytest.mark.slow
def test_over_loopback(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Namespaces, "missing", staticmethod(lambda: "not here"))
    methods = [m for m in METHODS if m.label in (ALONE, "all_reduce")]
    assert len(methods) == 2
    monkeypatch.setattr(_network, "chosen", lambda labels: methods)
    result = _network.network(
        rounds=1,
        pairs=1,
        steps=1,
        curve_steps=2,
        hosts=2,
        width=8,
        layers=1,
        out=str(tmp_path),
    )
    assert (tmp_path / "network.png").exists()
    saved = json.loads((tmp_path / "network.json").read_text())
    assert saved["stated"] == result["stated"]
    assert [b["round"] for b in saved["blocks"]] == [0, 0, 1, 1]
    assert len(saved["curves"]["all_reduce"]) == 3
    assert "all_reduce" in capsys.readouterr().out
    with pytest.raises(ValueError, match="of namespaces: not here"):
        _network_audit.audit(Run("network_audit", tmp_path), methods, Shape(8, 1))


def test_refuses_names_that_it_does_not_know():
    with pytest.raises(ValueError, match=r"part must be one of .* got 'all'"):
        _network.checked(["all"])
    with pytest.raises(ValueError, match=r"method must be one of .* got 'ddp'"):
        _network_methods.chosen(["ddp"])
    assert [m.label for m in _network_methods.chosen(["DDP fp16"])] == [
        ALONE,
        f"DDP {ALONE}",
        "DDP fp16",
    ]


@pytest.mark.parametrize(
    ("version", "file", "text"),
    [(1, "cpu/{}/cpu.cfs_quota_us", "25000"), (2, "{}/cpu.max", "25000 100000")],
)
def test_a_quota_is_of_either_version(tmp_path, version, file, text):
    if version == 1:
        (tmp_path / "cpu").mkdir()
    quota = Quota(0.25, tmp_path)
    group = f"relaxjax{os.getpid()}"
    assert (tmp_path / file.format(group)).read_text() == text
    quota.hold([7])
    procs = (tmp_path / file.format(group)).parent / "cgroup.procs"
    assert procs.read_text() == "7"
    quota.free([8])
    assert (procs.parent.parent / "cgroup.procs").read_text() == "8"
