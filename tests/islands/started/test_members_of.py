"""Which member a process was, and two commands on one folder."""

import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from relaxjax.islands import Folder
from relaxjax.islands.carriers._open import CARRIER
from relaxjax.islands.common import _members as members
from relaxjax.islands.common._names import STARTED
from relaxjax.islands.started._members_of import drawn, mark_left, require_free
from relaxjax.islands.started._supervise import supervise

SCRIPT = """
import os, sys
from relaxjax.islands.carriers._folder import Folder
from relaxjax.islands.common import _members as members
store, name = Folder(sys.argv[1]), os.environ["RELAXJAX_ISLAND"]
for word in (os.environ["RELAXJAX_STARTED"], *sys.argv[2:]):
    members.enter(store, name, {"started": word})
sys.exit(1)
"""


@pytest.fixture
def store(tmp_path):
    return Folder(tmp_path / "run")


def left(store: Folder) -> list[str]:
    return [name for name in store.names(members.FOLDER) if name.endswith(".left")]


def test_the_process_that_ended_is_marked_and_not_the_newest(store):
    for word in ("one.1", "one.2", "other.1"):
        members.enter(store, "a", {"started": word})
    assert not mark_left(store, "a", "three")
    assert not mark_left(store, "b", "one")
    assert left(store) == []
    assert mark_left(store, "a", "one.2")
    assert left(store) == ["a.000002.left"]
    assert not mark_left(store, "a", "other")  # all of a command's, on Ray
    assert left(store) == ["a.000002.left", "a.000003.left"]


def test_a_process_of_another_command_is_named_at_once(store):
    word, said = drawn(), list[str]()
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(
        command, env=os.environ | {STARTED: word}, stdin=subprocess.PIPE
    ) as child:
        record: dict[str, Any] = {"host": socket.gethostname(), "pid": child.pid}
        members.enter(store, "a", {**record, "started": "its number was another's"})
        require_free(store, ["a"], said.append, sleep=lambda seconds: None)
        members.enter(store, "a", {**record, "started": word})
        with pytest.raises(ValueError, match=rf"a of .* is running .* {child.pid}\)"):
            supervise(command, ["a", "b"], f"folder:{store.place}")
        require_free(store, ["b"], said.append)
        require_free(store, ["a"], said.append, own=word[:5])  # on Ray
        mark_left(store, "a", word)
        require_free(store, ["a"], said.append)
        assert child.stdin is not None
        child.stdin.close()
    assert said == []


def test_who_is_alive_elsewhere_is_named(store):
    member = members.enter(store, "a", {"host": "far\x1b", "pid": 7, "started": "x"})
    said, beats = list[str](), iter(range(9))

    def sleep(seconds: float) -> None:
        members.beat(store, member, next(beats))

    members.beat(store, member, 99)
    require_free(store, ["a"], said.append, sleep=sleep)
    (words,) = said
    assert words.startswith("a is alive (far\\x1b, process 7), and ends when")


@pytest.mark.parametrize(
    "others", [pytest.param([], marks=pytest.mark.long), ["other"]]
)
def test_only_an_island_that_nobody_else_has_is_started_again(store, others, capfd):
    command = [sys.executable, "-c", SCRIPT, store.place, *others]
    status = supervise(command, ["a"], f"folder:{store.place}")
    said = capfd.readouterr().err
    if others:
        assert (status, said.count("another command has this island now")) == (76, 1)
        assert left(store) == ["a.000001.left"]
    else:
        assert (status, said.count("given up")) == (1, 1)
        assert len(left(store)) == 1
        assert members.newest(store) == {"a": 5}


def test_a_program_that_goes_elsewhere_finds_its_run(tmp_path, monkeypatch):
    """Hydra gives each job a folder of its own."""
    monkeypatch.chdir(tmp_path)
    told = tmp_path / "told"
    script = f"import os; open({str(told)!r}, 'w').write(os.environ[{CARRIER!r}])"
    command = [sys.executable, "-c", script]
    assert supervise(command, ["a"], "folder:runs/x") == 0
    assert told.read_text() == f"folder:{tmp_path / 'runs' / 'x'}"


FINAL = {
    76: ("Superseded('a newer one')", "another command has this island now"),
    77: ("RunGone('runs/x', 42)", "there is no run to go on with"),
}


@pytest.mark.parametrize("code", FINAL)
def test_a_process_that_must_not_come_back_has_a_status_of_its_own(store, code, capfd):
    raised, why = FINAL[code]
    words = f"import relaxjax.islands; raise relaxjax.islands.{raised}"
    done = subprocess.run([sys.executable, "-c", words])
    assert done.returncode == code
    assert "Traceback" not in capfd.readouterr().err
    command = [sys.executable, "-c", f"import sys; sys.exit({code})"]
    assert supervise(command, ["a", "b"], f"folder:{store.place}") == code
    assert capfd.readouterr().err.count(why) == 2
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
