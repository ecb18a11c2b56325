"""Two `Checkpoints` of one process on a folder, as of a notebook cell that runs again.

The first one is forgotten, and its last save is still being written.
"""

import gc
import os
import shutil
import threading
import time
from concurrent.futures import Future

import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import checkpoint, emulate, to_workers
from relaxjax.checkpoint import Checkpoints, _lock, _manager, _under_way

MESH = emulate(2)


def state(value: float = 0.0) -> dict[str, object]:
    return {"params": to_workers(jnp.full(3, float(value)), MESH)}


@pytest.fixture
def slow(monkeypatch):
    """Files take a while, and shorter later ones do not overtake them."""
    whole, took = _manager.write, [0.6, 0.3, 0.1]

    def write(*args):
        time.sleep(took.pop(0) if took else 0)
        whole(*args)

    monkeypatch.setattr(_manager, "write", write)


def cell(folder, kept: list[Checkpoints]) -> tuple[int, float]:
    """Where it went on from: the step, and what was saved there."""
    checkpoints = Checkpoints(folder, MESH, every=1)
    kept.append(checkpoints)
    step, found = checkpoints.restore(state())
    assert checkpoints.save(step + 1, state(step + 1))
    return step, float(found["params"][0, 0])


@pytest.mark.parametrize("forgotten", [True, False], ids=["dropped", "alive"])
def test_the_next_one_goes_on_from_a_save_under_way(forgotten, slow, tmp_path):
    kept: list[Checkpoints] = []
    for number in range(4):
        assert cell(tmp_path / "run", kept) == (number, number)
        if forgotten:
            kept.clear()
    for each in kept:
        each.close()
    assert checkpoint.latest(tmp_path / "run") == 4
    assert not list((tmp_path / "run").glob("*relaxjax-tmp*"))


def test_a_reader_of_the_process_sees_it_too(slow, tmp_path):
    writer = Checkpoints(tmp_path, MESH, every=1)
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    assert writer.save(1, state(1.0))
    assert checkpoint.latest(link) == 1
    assert writer.save(2, state(2.0))
    np.testing.assert_array_equal(
        checkpoint.restore_params(tmp_path, like=np.zeros(3, np.float32)), np.full(3, 2)
    )
    assert writer.save(3, state(3.0))
    with Checkpoints(tmp_path, MESH, read_only=True) as reader:
        assert reader.restore(state())[0] == 3
    writer.close()


def test_a_reader_that_waits_for_a_step_waits_no_longer_than_it_says(
    tmp_path, monkeypatch
):
    goes_on, whole = threading.Event(), _manager.write

    def held(*args):
        assert goes_on.wait(60)
        whole(*args)

    monkeypatch.setattr(_manager, "write", held)
    with Checkpoints(tmp_path, MESH) as writer:
        assert writer.save(1, state(1))
        with (
            Checkpoints(tmp_path, MESH, read_only=True) as reader,
            pytest.raises(TimeoutError, match="no checkpoint of step 2"),
        ):
            reader.wait(2, timeout=0.2)
        assert not goes_on.is_set()
        goes_on.set()
    assert checkpoint.latest(tmp_path) == 1


def test_a_fork_does_not_wait_for_the_saves_of_its_parent(tmp_path, monkeypatch):
    """Their thread is not in it."""
    save: Future[bool] = Future()
    _under_way.begun(tmp_path, save)
    mine = os.getpid()
    monkeypatch.setattr(_under_way.os, "getpid", lambda: mine + 1)
    ends = threading.Timer(20, save.set_result, [True])
    ends.start()
    assert checkpoint.latest(tmp_path) is None
    assert not save.done()
    ends.cancel()


@pytest.mark.parametrize("told", [1, None], ids=["later", "never"])
def test_a_lock_whose_owner_has_no_name_yet_is_looked_at_again(
    told, tmp_path, monkeypatch
):
    first = Checkpoints(tmp_path, MESH)
    owner, looks = _lock._owner, []

    def read(path):
        looks.append(path)
        return owner(path) if told and len(looks) > told else {}

    monkeypatch.setattr(_lock, "_owner", read)
    if told:
        Checkpoints(tmp_path, MESH).close()
    else:
        monkeypatch.setattr(_lock, "_HELD", {})  # as in another process
        with pytest.raises(ValueError, match="another process writes checkpoints"):
            Checkpoints(tmp_path, MESH)
    assert len(looks) > 1
    first.close()


def test_a_closed_one_writes_no_more(tmp_path):
    """Another run may have the folder since then; it still reads."""
    with Checkpoints(tmp_path, MESH, every=1) as saves:
        saves.save(1, state(1))
    with pytest.raises(ValueError, match=r"save: step 2 of Checkpoints .* closed"):
        saves.save(2, state(2))
    with pytest.raises(ValueError, match=r"forget_newer=True .* closed"):
        saves.restore(state(), step=1, forget_newer=True)
    assert saves.restore(state())[0] == 1


@pytest.mark.parametrize("first", ["closed", "forgotten"])
def test_a_folder_is_its_writers_until_the_last_one_is_done(first, tmp_path):
    """A notebook's second `Checkpoints` had no part in the lock of the first."""
    one = Checkpoints(tmp_path, MESH)
    two = Checkpoints(tmp_path, MESH)
    if first == "closed":
        one.close()
    del one
    gc.collect()
    taken, owner = _lock._taken(tmp_path / _lock.NAME)
    assert taken is None
    assert owner is not None
    assert owner["pid"] == os.getpid()
    two.close()
    assert not (tmp_path / _lock.NAME).exists()
    three = Checkpoints(tmp_path, MESH)
    assert three.save(1, state(1.0), now=True)
    three.close()


def test_a_folder_that_was_made_anew_has_another_lock(tmp_path, monkeypatch):
    """The first one's end takes nothing from the second; nor is it another's writer."""
    folder = tmp_path / "run"
    first = Checkpoints(folder, MESH)
    shutil.rmtree(folder)
    path = (folder / _lock.NAME).resolve()
    with Checkpoints(folder, MESH), (tmp_path / "gone").open("a+") as gone:
        first.close()
        assert path.exists()
        monkeypatch.setitem(_lock._HELD, path, _lock._Held(gone, path))
        with pytest.raises(ValueError, match="writes checkpoints into"):
            Checkpoints(folder, MESH)
        monkeypatch.undo()
    assert not path.exists()
