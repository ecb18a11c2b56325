"""A run and those who look at it; two runs in one folder."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import relaxjax
from relaxjax import emulate
from relaxjax.checkpoint import (
    Checkpoints,
    _files,
    _folder,
    _lock,
    _manager,
    latest,
    restore_params,
)

MESH = emulate(2)
ROOT = Path(__file__).parents[2]


def state(value: float) -> dict[str, Any]:
    return {"params": relaxjax.to_workers(jnp.full(3, value), MESH)}


def names(folder: Path) -> list[str]:
    return sorted(x.name for x in folder.iterdir())


@pytest.mark.parametrize("how", [{"read_only": True}, {}], ids=["reads", "writes"])
def test_who_opens_a_folder_destroys_no_save_under_way(how, tmp_path, monkeypatch):
    begun, goes_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> None:
        begun.set()
        assert goes_on.wait(60)
        _files.write(*given)

    with Checkpoints(tmp_path, MESH, every=10, keep=2) as run:
        assert run.save(10, state(10))
        run.wait()
        monkeypatch.setattr(_manager, "write", slow)
        assert run.save(20, state(20))
        assert begun.wait(60)
        assert "10" in names(tmp_path)
        threading.Timer(0.2, goes_on.set).start()
        with Checkpoints(tmp_path, MESH, **how) as other:  # of this process: it waits
            assert other.steps == [10, 20] == [10, latest(tmp_path)]
            run.wait()
            assert run.save(30, state(30))
            run.wait()
            assert other.steps == [20, 30]
            assert float(other.restore(state(0))[1]["params"][0, 0]) == 30
        assert restore_params(tmp_path)[0] == 30
    assert names(tmp_path) == ["20", "30"]


def test_a_reader_writes_nothing(tmp_path):
    with Checkpoints(tmp_path / "none", MESH, read_only=True) as reader:
        assert reader.steps == []
        with pytest.raises(ValueError, match="there is no checkpoint in"):
            reader.restore({"params": jnp.ones((2, 3))})
    assert latest(tmp_path / "none") is None
    assert names(tmp_path) == []
    with Checkpoints(tmp_path, MESH) as run:
        run.save(1, state(1))
        run.save(2, state(2))
    left = tmp_path / "9.relaxjax-tmp-5f1e-1"
    left.mkdir()
    with Checkpoints(tmp_path, MESH, read_only=True) as reader:
        with pytest.raises(ValueError, match="opened read_only=True; only the run's"):
            reader.save(3, state(3))
        with pytest.raises(ValueError, match="leave one of them out"):
            reader.restore(state(0), step=1, forget_newer=True)
        assert reader.restore(state(0), step=1)[0] == 1
    assert names(tmp_path) == ["1", "2", left.name]


def test_a_reader_waits_for_a_step(tmp_path):
    with (
        Checkpoints(tmp_path, MESH) as run,
        Checkpoints(tmp_path, MESH, read_only=True) as reader,
    ):
        with pytest.raises(TimeoutError, match=r"no checkpoint of step 4 came .*alive"):
            reader.wait(4, timeout=0)
        later = threading.Timer(0.3, run.save, (5, state(5)))
        later.start()
        reader.wait(4)
        assert reader.restore(state(0))[0] == 5
        with pytest.raises(ValueError, match="where this run itself writes"):
            run.wait(5)
        later.join()


def test_what_is_removed_meanwhile_is_passed_over(tmp_path, monkeypatch):
    """The run keeps one, and removes it before the reader has opened it."""
    with (
        Checkpoints(tmp_path, MESH, keep=1) as run,
        Checkpoints(tmp_path, MESH, read_only=True) as reader,
    ):
        run.save(1, state(1))
        run.wait()
        whole = reader._store.steps
        seen = []

        def steps() -> list[int]:
            seen.append(whole())
            if len(seen) == 1:
                run.save(2, state(2))
                run.wait()
            return seen[-1]

        monkeypatch.setattr(reader._store, "steps", steps)
        assert reader.restore(state(0))[0] == 2
        assert seen == [[1], [2]]


def test_a_list_whose_folders_are_all_gone_is_made_again(tmp_path, monkeypatch):
    """The run keeps one, and renames it between a reader's list and its look."""
    with Checkpoints(tmp_path, MESH, keep=1) as run:
        run.save(1, state(1))
        run.wait()
        listed, seen = _folder._numbers_in, []

        def numbers(folder: Path) -> list[int]:
            seen.append(found := listed(folder))
            if len(seen) == 1:
                run.save(2, state(2))
                run.wait()
            return found

        monkeypatch.setattr(_folder, "_numbers_in", numbers)
        assert latest(tmp_path) == 2
        assert seen[0] == [1]


WRITER = """
import os, signal, sys
from relaxjax import emulate
from relaxjax.checkpoint import Checkpoints
checkpoints = Checkpoints(sys.argv[1], emulate(2))
if not os.fork():
    signal.alarm(3)  # a fork of a process with threads may wait for one that it lacks
    sys.exit()  # the end of a fork is not that of the run
os.wait()
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.mark.long
def test_a_second_writer_is_refused_and_told_of_the_first(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    first = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
    )
    with first:
        assert first.stdout
        assert first.stdout.readline() == "open\n"
        with pytest.raises(ValueError, match=rf"process {first.pid} on .*read_only"):
            Checkpoints(tmp_path, MESH)
        with Checkpoints(tmp_path, MESH, read_only=True) as reader:
            assert reader.steps == []
        first.kill()  # and its lock ends with it
        first.wait()
        with Checkpoints(tmp_path, MESH) as run:
            told = json.loads((tmp_path / _lock.NAME).read_text())
            assert told["pid"] == os.getpid()
            assert run.save(1, state(1))
    assert names(tmp_path) == ["1"]


def test_a_second_run_of_one_process_mixes_with_no_first(tmp_path):
    """As in a notebook whose cell runs again: who saves without having looked stops."""
    with Checkpoints(tmp_path, MESH) as first, Checkpoints(tmp_path, MESH) as second:
        assert first.save(1, state(1))
        first.wait()
        second.restore(state(0))
        assert second.save(2, state(2))
        second.wait()
        with pytest.raises(
            ValueError, match=r"another run has saved \[2\] in .* step 1"
        ):
            first.save(3, state(3))
        assert first.restore(state(0))[0] == 2
        assert first.save(3, state(3))
        first.wait()
        with pytest.raises(
            ValueError, match=r"another run has saved \[3\] in .* step 2"
        ):
            second.save(5, state(5))
        _, at_two = second.restore(state(0), step=2, forget_newer=True)
        assert second.save(3, at_two)
    assert names(tmp_path) == ["1", "2", "3", "forgotten"]


@pytest.mark.parametrize("host", ["elsewhere", socket.gethostname()])
def test_a_process_of_the_same_number_is_another_one(host, tmp_path, monkeypatch):
    """In containers many are process 1, and their hosts may have one name."""
    with Checkpoints(tmp_path, MESH):
        monkeypatch.setattr(_lock.socket, "gethostname", lambda: host)
        monkeypatch.setattr(_lock, "_HELD", {})  # as in another process
        with pytest.raises(ValueError, match=rf"process {os.getpid()} on .* writes"):
            Checkpoints(tmp_path, MESH)


def test_a_lock_of_a_file_that_was_removed_meanwhile_is_none(tmp_path, monkeypatch):
    """Its owner ends just when it is opened, and a third process has made it anew."""
    path, flock = tmp_path / _lock.NAME, fcntl.flock

    def late(file: int, how: int) -> None:
        monkeypatch.undo()
        path.unlink()
        path.touch()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with Checkpoints(tmp_path, MESH):
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_where_the_file_system_has_no_locks_nothing_is_locked(tmp_path, monkeypatch):
    def none(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    with Checkpoints(tmp_path, MESH) as run:
        assert run.save(0, state(7))
        assert run.save(1_000_000, state(8))
    assert latest(tmp_path) == 1_000_000
    assert restore_params(tmp_path, step=0)[0] == 7


ODD = {
    "an empty folder": lambda there: (there / "99").mkdir(),
    "a file": lambda there: (there / "101").write_text(""),
    "leading zeros": lambda there: (there / "0084").mkdir(),
    "digits of another script": lambda there: (there / "\u0668\u0664").mkdir(),
    "too many digits": lambda there: (there / ("9" * 19) / "state").mkdir(parents=True),
    "a link to nowhere": lambda there: (there / "99").symlink_to(there / "nowhere"),
}


@pytest.mark.parametrize("left", ODD.values(), ids=ODD)
def test_what_has_a_number_for_its_name_may_be_no_checkpoint(left, tmp_path):
    with Checkpoints(tmp_path, MESH) as run:
        run.save(84, state(84))
    left(tmp_path)
    assert latest(tmp_path) == 84
    with Checkpoints(tmp_path, MESH, read_only=True) as reader:
        assert reader.steps == [84]
        assert reader.restore(state(0))[0] == 84
    assert float(restore_params(tmp_path)[0]) == 84


def test_a_checkpoint_without_its_index_is_named_and_not_waited_for(tmp_path):
    (tmp_path / "99" / "state").mkdir(parents=True)
    with (
        Checkpoints(tmp_path, MESH, read_only=True) as reader,
        pytest.raises(ValueError, match=r"99/state has no index\.json"),
    ):
        reader.restore(state(0))


def test_who_looks_into_an_empty_folder_does_not_get_a_start_for_a_model(tmp_path):
    with (
        Checkpoints(tmp_path / "mistyped", MESH, read_only=True) as reader,
        pytest.raises(ValueError, match=r"there is no checkpoint in .*mistyped"),
    ):
        reader.restore(state(0))


def test_a_checkpoint_is_never_without_a_file(tmp_path, monkeypatch):
    """A process's files that nobody sees are an error, and not a checkpoint."""

    def forgets(directory: Path, *given: Any) -> None:
        _files.write(directory, *given)
        (directory / "data-0.bin").unlink()

    monkeypatch.setattr(_manager, "_PATIENCE", 0.2)
    with Checkpoints(tmp_path, MESH) as run:
        assert run.save(1, state(1))
        run.wait()
        monkeypatch.setattr(_manager, "write", forgets)
        assert run.save(2, state(2))
        with pytest.raises(OSError, match="does not see the files of processes \\[0"):
            run.wait()
        assert run.steps == [1]
    assert names(tmp_path) == ["1"]
