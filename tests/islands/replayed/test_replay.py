"""Merges made again from a folder, lines that were changed, and `kill -9`."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from relaxjax import islands
from relaxjax.cli import _islands
from relaxjax.cli._app import app
from relaxjax.islands.carriers._folder import Folder
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._files import seal
from relaxjax.islands.common._status import status
from relaxjax.islands.replayed._replay import replay
from relaxjax.islands.started import _incarnations
from relaxjax.islands.started._supervise import supervise
from tests.islands.world import SETTINGS, World

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def kept(tmp_path) -> Folder:
    """A folder with six merges, one of them by another leader."""
    world = World(SETTINGS._replace(keep=True))
    processes = [world.process(name) for name in "abc"]
    for salt in range(7):
        if salt == 3:
            processes = processes[1:]  # the leader is gone
            world.now += 100
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
    return store


def test_merges_are_made_again_to_the_bit(kept):
    done = list(replay(kept))
    assert len(done) == log.newest(kept) >= 6
    assert all(merge.is_equal and not merge.fault for merge in done)
    assert {len(merge.contributors) for merge in done} == {2, 3}


def test_the_momentum_matters_to_the_replay(kept, monkeypatch):
    from relaxjax.islands.common import _round
    from relaxjax.islands.common._merge import first_outer, merge

    def forgetful(settings, anchor, outer, parts):
        return merge(settings, anchor, first_outer(settings, anchor), parts)

    monkeypatch.setattr(_round, "merge", forgetful)
    done = list(replay(kept))
    assert [merge.is_equal for merge in done[:3]] == [True, True, False]
    assert done[2].difference > 1e-3


def changed(kept: Folder, version: int, change: Any, sealed: bool) -> None:
    line = json.loads(kept.read(log.file_of(version)))
    change(line)
    if sealed:  # with a digest that fits
        line = {k: v for k, v in line.items() if k not in ("digest", "format")}
        kept.replace(log.file_of(version), seal(line))
    else:
        kept.replace(log.file_of(version), json.dumps(line).encode())


def more_tokens(line: Any) -> None:
    line["contributions"][0]["tokens"] += 1


@pytest.mark.parametrize("sealed", [False, True])
def test_a_changed_line_is_found_and_named(kept, sealed):
    changed(kept, 3, more_tokens, sealed)
    last = list(replay(kept))[-1]
    assert last.version == 3
    assert "log/00000003" in last.fault
    result = CliRunner().invoke(app, ["islands", "replay", kept.place])
    assert result.exit_code == 1
    assert "log/00000003" in result.output


def test_a_changed_leader_is_found_by_the_next_line(kept):
    changed(kept, 3, lambda line: line.update(leader="x.000001"), True)
    last = list(replay(kept))[-1]
    assert (last.version, "log/00000003" in last.fault) == (4, True)


def test_a_missing_contribution_is_named(kept):
    record, _ = log.read(kept, 2)
    kept.delete(record["contributions"][1]["file"])
    last = list(replay(kept))[-1]
    assert (last.version, "offers/00000002" in last.fault) == (2, True)


def test_what_a_run_has_not_kept_cannot_be_merged_again(tmp_path):
    world = World()
    world.process("a")
    with pytest.raises(ValueError, match="keep=True"):
        list(replay(world.store))
    result = CliRunner().invoke(app, ["islands", "replay", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not the folder of a run" in result.output


def test_status_counts_members_and_tokens(kept):
    now = status(kept, sleep=lambda seconds: None)
    assert now.version == log.newest(kept)
    rows = {row.name: row for row in now.rows}
    assert rows["a"].merged == 3
    assert rows["b"].behind == 0
    assert rows["a"].tokens == 3 * 8 / 2
    result = CliRunner().invoke(app, ["islands", "status", kept.place])
    assert result.exit_code == 0
    assert "last merge: fragment" in result.output


@pytest.mark.long
def test_status_as_a_page(kept, tmp_path):
    page = tmp_path / "status.html"
    words = ["islands", "status", kept.place, "--html", str(page)]
    assert CliRunner().invoke(app, words).exit_code == 0
    text = page.read_text()
    assert "<tr class='silent'><td>a</td><td>1</td><td>silent</td>" in text
    assert f"{log.newest(kept)} merges</h1>" in text
    words[-1] = str(tmp_path / "no" / "page.html")
    failed = CliRunner().invoke(app, words)
    assert failed.exit_code == 2
    assert "No such file or directory" in failed.output


def test_status_is_watched_until_the_run_is_gone(kept, monkeypatch):
    """Each look is shown and written; what ends it is said."""
    looks = []

    def look(store):
        looks.append(status(store, sleep=lambda seconds: None))
        if len(looks) == 3:
            raise FileNotFoundError("the folder is gone")
        return looks[-1]._replace(version=100 + len(looks))

    monkeypatch.setattr(islands, "status", look)
    result = CliRunner().invoke(app, ["islands", "status", kept.place, "--watch"])
    assert result.exit_code == 2
    assert "102 merges" in result.output
    assert "the folder is gone" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["replay", "DIR", "--watch"], "--watch goes with status"),
        (["replay", "DIR", "--html", "x.html"], "--html goes with status"),
        (["status", "DIR", "--emulated"], "--emulated goes with replay"),
    ],
)
def test_an_option_of_another_command_is_refused(kept, words, said):
    words = [kept.place if word == "DIR" else word for word in words]
    result = CliRunner().invoke(app, ["islands", *words])
    assert result.exit_code == 2
    assert said in result.output


SCRIPT = """
import numpy as np
from relaxjax import islands
with islands.join({"a": np.zeros(6, np.float32), "b": np.zeros(3, np.float32)},
                  sync_every=4, fragments=2, quorum=2, grace=0.3, keep=True,
                  lost_after=1.0, poll=0.01, pace=50.0) as island:
    params = island.params
    while island.version < 40:
        params = {k: x + 1 for k, x in params.items()}
        params = island.exchange(params, tokens=3)
print("done", island.incarnation)
"""


@pytest.mark.slow
def test_killed_islands_come_back_and_the_run_ends(tmp_path, capfd):
    """`kill -9` of each island in turn, the one with the lease too."""
    script, run = tmp_path / "train.py", tmp_path / "run"
    script.write_text(SCRIPT)
    store, killed = Folder(run), []
    ended = threading.Event()

    def kill() -> None:
        for number, at in enumerate((3, 8, 13)):
            while log.newest(store) < at and not ended.wait(0.05):
                pass
            name = f"members/island-{number}.000001"
            pid = json.loads(store.read(name))["pid"]
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    names = [f"island-{i}" for i in range(3)]
    code = supervise([sys.executable, "-u", str(script)], names, f"folder:{run}")
    ended.set()
    killer.join()
    assert (code, len(killed)) == (0, 3)
    out = capfd.readouterr()
    assert len(re.findall(r"\[island-\d\] done 2", out.out)) == 3
    assert out.err.count("ended by SIGKILL; starting it again") == 3
    done = list(replay(store))
    assert len(done) >= 40
    assert all(merge.is_equal for merge in done)
    keys = [
        (c["island"], c["incarnation"], v % 2, c["base"])
        for v in range(1, len(done) + 1)
        for c in log.read(store, v)[0]["contributions"]
    ]
    assert len(keys) == len(set(keys))
    own = CliRunner().invoke(app, ["islands", "replay", str(run), str(script)])
    assert own.exit_code == 0, own.output
    assert f"{len(keys)} contributions of" in own.output
    assert f"{len(keys)} equal to the bit" in own.output


@pytest.mark.parametrize(
    ("end", "words"), [("sys.exit(3)", "status 3"), ("os.abort()", "SIGABRT")]
)
def test_a_script_that_fails_is_given_up(end, words, tmp_path, monkeypatch, capfd):
    """JAX aborts where it fails a check: that is no kill from outside."""
    monkeypatch.setattr(_incarnations, "_PAUSE", 0.01)
    monkeypatch.setattr(_incarnations, "_TRIES", 3)
    script = tmp_path / "train.py"
    script.write_text(f"import os, sys; {end}")
    command = [sys.executable, str(script)]
    assert supervise(command, ["a"], f"folder:{tmp_path}/run") == 1
    said = capfd.readouterr().err
    assert said.count(f"ended by {words}") == 3
    assert f"ended by {words}; given up" in said


def test_a_script_that_is_not_there(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "relaxjax", "islands", "no.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "no.py is not a file" in done.stderr


@pytest.mark.slow
def test_the_example_runs_again_in_both_ways(tmp_path, monkeypatch):
    script, run = str(EXAMPLES / "islands" / "digits.py"), str(tmp_path / "run")
    monkeypatch.setenv("STEPS", "96")
    monkeypatch.setenv("STEPS_PER_SECOND", "40")
    command = [sys.executable, "-m", "relaxjax", "islands", script, "-n", "2"]
    subprocess.run([*command, "--carrier", f"folder:{run}"], check=True)
    own = CliRunner().invoke(app, ["islands", "replay", run, script])
    assert own.exit_code == 0, own.output
    found = re.search(r"(\d+) contributions of 2 processes.* (\d+) equal", own.output)
    assert found
    assert found[1] == found[2] != "0"
    words = ["islands", "replay", run, script, "--emulated"]
    together = CliRunner().invoke(app, words)
    assert together.exit_code == 0, together.output
    merged = re.search(r"merges emulated .* difference is (\S+),", together.output)
    assert merged
    assert float(merged[1]) < 1e-4


def test_a_run_without_a_merge_cannot_be_emulated(kept, tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("def program():\n    return 1\n")
    monkeypatch.setattr(_islands.rooms, "emulate", lambda store, program: iter(()))
    words = ["islands", "replay", kept.place, str(script), "--emulated"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 2
    assert "has no merge" in ended.output


def test_a_script_without_a_program_cannot_be_emulated(kept, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    words = ["islands", "replay", kept.place, str(script), "--emulated"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 2
    assert "has no function `program`" in ended.output
    ended = CliRunner().invoke(app, [*words[:3], "--emulated"])
    assert ended.exit_code == 2
    assert "is not a script" in ended.output
