"""The chaos benchmark: its schedule, its ledger, and a small run of real processes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.islands import chaos, course, diary, faults, ledger, live, wrong_member
from benchmarks.islands.setting import Setting
from benchmarks.islands.wrong_ways import WAYS, way_of
from relaxjax.islands.carriers._folder import Folder
from tests.islands.world import SETTINGS, World

SETTING = Setting(
    islands=3, pace=2.0, slow=0.5, rows=8, sync_every=2, fragments=2, grace=1.0,
    lost_after=3.0, poll=0.01, rate=0.1, width=4, seed=0,
)  # fmt: skip


def test_the_same_seed_is_the_same_schedule():
    every = {"kill": 30.0, "syncer": 60.0, "freeze": 0.0}
    one, other = (faults.schedule(seed, 180.0, 3, every) for seed in (0, 1))
    assert one == faults.schedule(0, 180.0, 3, every) != other
    times = [(f.kind, f.at) for f in one]
    assert times == [(f.kind, f.at) for f in other]
    assert [at for kind, at in times if kind == "kill"] == [30, 60, 90, 120, 150]
    assert [at for kind, at in times if kind == "syncer"] == [40, 100, 160]


def test_processes_are_found_by_their_environment():
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    env = {"RELAXJAX_ISLAND": "island-7", "RELAXJAX_CARRIER": "ray:/no/where"}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE) as child:
        found: dict[str, int] = {}
        while not found:  # until it has replaced the copy of this process
            found = faults.processes(faults.os.getpid(), "RELAXJAX_ISLAND")
        assert found == {"island-7": child.pid}
        assert faults.processes_of("ray:/no/where", "RELAXJAX_ISLAND") == found
        assert faults.processes_of("ray:/else", "RELAXJAX_ISLAND") == {}
        assert child.stdin is not None
        child.stdin.close()


def test_a_frozen_process_wakes_up(monkeypatch):
    sent, now = [], [0.0]
    monkeypatch.setattr(faults.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(faults.os, "kill", lambda pid, number: sent.append(number.name))
    plan = [faults.Fault(1.0, "freeze", 0), faults.Fault(2.0, "kill", 1)]
    run = faults.Chaos(plan, lambda fault: ("x", 5 * (1 - fault.number)), 3.0)
    for at in (0.5, 1.5, 2.5, 4.0, 5.0):
        now[0] = at
        run.turn()
    assert sent == ["SIGSTOP", "SIGCONT"]
    assert [(m.kind, m.pid) for m in run.met] == [("freeze", 5), ("kill", 0)]


@pytest.fixture
def lived(tmp_path):
    """Four merges of three islands, of which the first is before the start."""
    world = World(SETTINGS._replace(keep=True))
    processes = [world.process(name) for name in ("island-0", "island-1", "island-2")]
    for salt in range(4):
        for p in processes:
            p.adopt()
            p.offer(8, 2, salt)
        for p in processes * 2:
            p.turn()
        world.now += 2
    world.check()
    store = Folder(tmp_path / "run")
    for name, data in world.store.files.items():
        store.replace(name, data)
    (tmp_path / diary.FOLDER).mkdir()
    commits = {v: 10.0 + 2 * v for v in range(5)}
    return live.Lived(tmp_path, 12.5, 22.5, 1.0, [], commits, 1)


def tell(lived, **line):
    said = {"what": "step", "name": "island-1", "pid": 7, "incarnation": 1, **line}
    with (lived.folder / diary.FOLDER / "island-1.7").open("a") as file:
        file.write(json.dumps(said) + "\n")


def test_goodput_and_pauses(lived):
    tell(lived, what="born", at=13.0, born=12.0)
    tell(lived, what="compiled", at=13.5, seconds=0.25)
    tell(lived, at=14.0, steps=1, merged=0.0, dropped=0.0, cpu=1.0)
    tell(lived, at=15.0, steps=9, merged=16.0, dropped=8.0, cpu=1.5)
    figures = ledger.of_islands(SETTING, lived)
    # Merges 2, 3 and 4: 3 x 3 contributions of 8 tokens, each for half of the model.
    assert figures["tokens"] == 9 * 8 / 2
    assert figures["goodput"] == 36 / ((2 + 2 + 1) * 8 * 10)
    assert figures["pause"]["longest"] == 4.5  # from the last merge to the end
    assert figures["course"] == [(1.5, 12), (3.5, 24), (5.5, 36)]
    assert figures["restarts"]["from_birth_to_training"] == 2.0
    assert figures["restarts"]["compilation"] == 0.25
    book = figures["ledger"]
    assert (book["contributions"], book["merged_twice"]) == (12, 0)
    assert book["acknowledged_and_lost"] == []
    assert book["tokens_taken_in"] == 72
    assert book["tokens_lost"] == 72 - 48 - 4


def test_a_run_that_begins_again_falls_back(lived):
    """Two steps of one second are one pair; what is outside of the run is none."""
    steps = [(12.0, 1), (13.0, 5), (13.4, 6), (14.6, 3), (23.0, 9)]
    said = [{"at": at, "steps": n} for at, n in steps]
    tokens = SETTING.rows * SETTING.islands
    expected = [(0.9, 5 * tokens), (2.1, 2 * tokens)]
    assert course.of_steps(SETTING, lived, said, first=1) == expected


def test_what_was_acknowledged_and_is_not_in_the_log_is_found(lived):
    tell(lived, at=15.0, steps=9, merged=12.0, dropped=0.0, cpu=1.5)
    lines = diary.read(lived.folder)
    records = ledger._ledger(SETTING, [], lines)
    assert records["acknowledged_and_lost"] == [["island-1", 1, 12.0]]


def test_half_a_line_of_a_diary_is_left_out(lived):
    tell(lived, at=15.0, steps=9)
    with (lived.folder / diary.FOLDER / "island-1.7").open("a") as file:
        file.write('{"what": "st')
    assert [line["steps"] for line in diary.read(lived.folder)] == [9]


def test_rounds_of_torchft_that_were_not_committed_do_not_count(tmp_path):
    (tmp_path / diary.FOLDER).mkdir()
    lived = live.Lived(tmp_path, 10.0, 20.0, 1.0, [], {}, 1)
    tell(lived, what="born", at=9.0, born=8.0)
    tell(lived, what="compiled", at=9.5, seconds=0.1)
    tell(lived, at=9.6, steps=1, cpu=1.0)
    tell(lived, at=14.0, steps=9, cpu=1.5)
    for at, tokens, number, committed in [
        (9.9, 800, 1, True),  # before the start
        (12.0, 16, 2, True),
        (13.0, 16, 2, False),
        (18.0, 24, 3, True),
        (21.0, 800, 4, True),  # after the end
    ]:
        said = {"tokens": tokens, "round": number, "committed": committed}
        tell(lived, what="round", at=at, loss=float(number), **said)
    figures = ledger.of_torchft(SETTING, lived)
    assert figures["tokens"] == (16 + 24) / 2
    assert figures["goodput"] == 20 / ((2 + 2 + 1) * 8 * 10)
    assert (figures["rounds"], figures["given_up"]) == (2, 1)
    assert figures["pause"] == {"usual": 2.0, "longest": 6.0}
    assert figures["held_out_loss"] == 2.5


@pytest.mark.slow
def test_chaos(tmp_path):
    """Real processes: none merged twice, none lost, and both runs go on."""
    result = chaos.chaos(tiny=True, out=tmp_path)
    saved = json.loads((tmp_path / "chaos.json").read_text())
    assert saved["islands"]["goodput"] == result["islands"]["goodput"] > 0
    book = result["islands"]["ledger"]
    assert (book["merged_twice"], book["acknowledged_and_lost"]) == (0, [])
    assert all(fault["pid"] for fault in result["islands"]["faults"])
    assert result["loss"]["said"] == []
    again = result["replay"]
    assert again["faults"] == []
    assert again["merges_equal"] == again["merges"] > 0
    assert again["contributions_equal"] == again["contributions"]
    assert result["fail-stop"]["starts"] > 1


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs root")
def test_a_disk_that_fills_up(tmp_path):
    """Islands say so, train on, and merge again when there is room."""
    every = {"kill_every": 0.0, "kill_syncer_every": 0.0, "fill_every": 6.0}
    how = {"islands": 2, "minutes": 0.25, "freeze_for": 3.0, "only": "islands"}
    result = chaos.chaos(**how, **every, out=tmp_path)
    first, *_ = result["islands"]["faults"]
    assert (first["kind"], len(result["islands"]["faults"])) == ("disk", 2)
    output = (tmp_path / "chaos" / "islands" / "output.txt").read_text()
    assert "No space left on device; training goes on" in output
    assert "the carrier works again" in output
    book = result["islands"]["ledger"]
    assert (book["merged_twice"], book["acknowledged_and_lost"]) == (0, [])
    again = result["replay"]
    assert (again["faults"], again["merges_equal"]) == ([], again["merges"])
    assert again["contributions_equal"] == again["contributions"] > 0


def test_the_last_island_is_wrong_in_turns_and_is_frozen():
    ways = [way_of(incarnation) for incarnation in range(1, 5)]
    assert ways == ["diverges", "NaN", "tokens", "diverges"]
    params = WAYS["NaN"].params({"x": np.ones(3)})
    assert np.isnan(params["x"]).all()
    plan = wrong_member._schedule(0, 180.0, 5, 30.0, 120.0)
    assert {f.number for f in plan if f.kind == "freeze"} == {4}
    assert len({f.number for f in plan if f.kind == "kill"}) > 1
    parts = [
        {"island": "island-4", "incarnation": 3},
        {"island": "island-0", "incarnation": 1},
        {"island": "island-4", "incarnation": 6},
    ]
    assert wrong_member._by_way("island-4", parts) == {"tokens": 2}


@pytest.mark.slow
def test_a_wrong_member_under_kills(tmp_path):
    """The others go on beside it; without bounds a mean does not."""
    how = {"minutes": 0.6, "islands": 4, "kill_every": 15.0, "width": 16}
    result = wrong_member.wrong_member(**how, bare="mean", out=tmp_path)
    mine, absent, bare = result["rows"]
    assert mine["goodput_of_others"] > 0.5 * absent["goodput_of_others"] > 0
    assert sum(mine["wrong_left_out"].values()) > 0
    assert mine["others_left_out"] == 0
    assert mine["largest_param"] < 10 < 1e3 < bare["largest_param"]
    for row in result["rows"]:
        again = row["replay"]
        assert again["faults"] == []
        assert again["merges_equal"] == again["merges"] > 0
