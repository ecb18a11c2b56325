"""A run that goes back says so; steps of any integer; a write that fails, said once."""

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import relaxjax
from relaxjax import emulate
from relaxjax.checkpoint import Checkpoints, _files, _manager

MESH = emulate(2)


def state(value: float) -> dict[str, Any]:
    return {"p": relaxjax.to_workers(jnp.full(3, value), MESH)}


def value(tree: dict[str, Any]) -> float:
    return float(tree["p"][0, 0])


def exploded(folder) -> None:
    """Checkpoints of 10, 20, .., 60; the loss explodes at 45."""
    with Checkpoints(folder, MESH, every=10, keep=None) as saves:
        for step in range(10, 61, 10):
            assert saves.save(step, state(step))


def test_a_run_that_goes_back_goes_on_from_there(tmp_path):
    exploded(tmp_path)
    with Checkpoints(tmp_path, MESH, every=10, keep=None) as saves:
        step, tree = saves.restore(state(0), step=20, forget_newer=True)
        assert (step, value(tree), saves.steps) == (20, 20, [10, 20])
        for step in (30, 40, 50):
            assert saves.is_due(step)
            assert saves.save(step, state(1000 + step))
    with Checkpoints(tmp_path, MESH, every=10, keep=3) as saves:
        step, tree = saves.restore(state(0))
        assert (step, value(tree)) == (50, 1050)
        assert saves.save(60, state(1060))
        assert saves.steps == [40, 50, 60]
    with Checkpoints(tmp_path / "forgotten" / "1", MESH) as aside:
        assert aside.steps == [30, 40, 50, 60]
        assert value(aside.restore(state(0))[1]) == 60


def test_without_the_word_nothing_is_saved_in_silence(tmp_path):
    exploded(tmp_path)
    with Checkpoints(tmp_path, MESH, every=10, keep=None) as saves:
        saves.restore(state(0), step=20)
        assert not saves.save(20, state(20))
        assert "step 20 is what this run has saved or restored last" in saves.why_not
        assert not saves.save(25, state(25))
        assert saves.why_not == "save: step 25 is not due, with every=10"
        for step, now in ((30, False), (45, True), (60, False)):
            assert saves.is_due(step) or now
            with pytest.raises(ValueError, match=r"step=\.\.\., forget_newer=True"):
                saves.save(step, state(1000 + step), now=now)
        assert saves.save(70, state(1070))
        assert saves.why_not == ""
        assert saves.steps == [10, 20, 30, 40, 50, 60, 70]


def test_another_run_in_the_same_folder(tmp_path):
    exploded(tmp_path)
    with (
        Checkpoints(tmp_path, MESH, every=10, keep=None) as saves,
        pytest.raises(ValueError, match=r"this run has restored none.*another folder"),
    ):
        saves.save(10, state(0))


def test_a_damaged_checkpoint_is_gone_back_from(tmp_path):
    exploded(tmp_path)
    (tmp_path / "60" / "state" / "data-0.bin").write_bytes(b"")
    with Checkpoints(tmp_path, MESH, every=10, keep=None) as saves:
        with pytest.raises(ValueError, match="not as it was written"):
            saves.restore(state(0))
        with pytest.raises(ValueError, match="not as it was written"):
            saves.restore(state(0), step=60, forget_newer=True)
        assert saves.restore(state(0), step=50, forget_newer=True)[0] == 50
        assert saves.save(60, state(1060))
        assert value(saves.restore(state(0))[1]) == 1060


@pytest.mark.parametrize("kind", [np.int64, np.uint8, jnp.int32], ids=str)
def test_a_step_of_any_integer_is_that_step(kind, tmp_path):
    how: Any = {"every": np.int64(10), "keep": np.int64(2)}
    with Checkpoints(tmp_path, MESH, **how) as saves:
        assert saves.is_due(kind(10))
        for step in (10, 20, 30):
            assert saves.save(kind(step), state(step))
        assert saves.restore(state(0), step=kind(20), forget_newer=True)[0] == 20
    index = (tmp_path / "20" / "state" / "index.json").read_text().split("\n")[1]
    assert json.loads(index)["step"] == 20


def test_what_is_no_step_is_refused(tmp_path):
    with Checkpoints(tmp_path, MESH) as saves:
        wrongs: list[tuple[Any, type[Exception]]] = [
            (1.0, TypeError),
            (jnp.ones(2, int), TypeError),
            ("1", TypeError),
            (True, ValueError),
            (-1, ValueError),
        ]
        for wrong, error in wrongs:
            for call in (saves.is_due, lambda step: saves.save(step, state(0))):
                with pytest.raises(error, match="step="):
                    call(wrong)
        assert saves.steps == []


def test_a_write_that_fails_is_said_once_and_can_be_made_again(tmp_path, monkeypatch):
    fails = {20, 40}

    def write(directory, snapshot, metadata):
        if metadata["step"] in fails:
            raise OSError(28, "No space left on device")
        _files.write(directory, snapshot, metadata)

    monkeypatch.setattr(_manager, "write", write)
    with Checkpoints(tmp_path, MESH, every=10, keep=None) as saves:
        assert saves.save(10, state(10))
        assert saves.save(20, state(20))
        with pytest.raises(OSError, match=r"step 20 .*No space left on device"):
            saves.wait()
        saves.wait()
        fails.clear()
        assert saves.save(20, state(20))
        assert saves.save(30, state(30))
        fails.add(40)
        assert saves.save(40, state(40))
        with pytest.raises(OSError, match="step 40"):
            saves.save(50, state(50))
        assert saves.save(50, state(50))
        assert saves.steps == [10, 20, 30, 50]
        assert value(saves.restore(state(0), step=50)[1]) == 50
        fails.add(60)
        assert saves.save(60, state(60))
        with pytest.raises(OSError, match="step 60"):
            saves.wait()
        assert not saves.save(50, state(50))  # where the run still is


def test_the_same_step_again_first_says_that_it_failed(tmp_path, monkeypatch):
    """The run's last save is that step, and on disk there is none."""
    fails = [OSError(28, "No space left on device"), ValueError("odd")]

    def write(*given):
        if fails:
            raise fails.pop(0)
        _files.write(*given)

    monkeypatch.setattr(_manager, "write", write)
    with Checkpoints(tmp_path, MESH) as saves:
        for why in ("No space left", "ValueError: odd"):
            assert saves.save(20, state(20))
            with pytest.raises(OSError, match=f"step 20 .*{why}") as raised:
                saves.save(20, state(20), now=True)
            assert raised.value.errno == (28 if "space" in why else None)
            assert [*tmp_path.glob("20*")] == []
        assert saves.save(20, state(20))
        assert not saves.save(20, state(20))
        assert saves.steps == [20]


def test_a_healthy_run_says_nothing(tmp_path, monkeypatch, caplog, capfd):
    """Saves under way, and who lists meanwhile; any warning is an error here."""
    caplog.set_level(0)
    listed = []

    def write(*given):
        with Checkpoints(tmp_path, MESH, read_only=True) as reader:
            listed.append(reader.steps)
        with Checkpoints(tmp_path, MESH) as other:
            listed.append(other.steps)
        _files.write(*given)

    monkeypatch.setattr(_manager, "write", write)
    with Checkpoints(tmp_path, MESH, keep=2) as saves:
        for step in range(4):
            assert saves.save(step, state(step))
            assert saves.is_due(step + 1)
        assert saves.steps == [2, 3]
    assert listed == [x for x in ([], [0], [0, 1], [1, 2]) for _ in range(2)]
    checkpoints = [r for r in caplog.records if not r.name.startswith("jax")]
    assert (checkpoints, capfd.readouterr().err) == ([], "")
