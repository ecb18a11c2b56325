"""Several processes write one checkpoint together, and read it, or one of emulation."""

from pathlib import Path

import numpy as np
import pytest

import relaxjax
from relaxjax import emulate
from relaxjax.checkpoint import Checkpoints
from tests import helpers
from tests.checkpoint import processes, training
from tests.hosts.launched import require_run


def emulated(name: str):
    """Transformation, mesh and state of emulated workers, as in `processes`."""
    tx, mesh = training.relaxed(name, 4), emulate(4)
    return tx, mesh, training.fresh(tx, mesh)


def saved_by_emulation(folder: Path):
    tx, mesh, state = emulated(processes.NAMES[0])
    state = training.trained(tx, state, mesh, processes.data(0, 1)[:3])
    with Checkpoints(folder, mesh) as checkpoints:
        checkpoints.save(3, processes.tree_of(state, 3))
    return state


@pytest.mark.long
def test_processes_save_and_restore_together(tmp_path):
    state = saved_by_emulation(tmp_path / "emulated")
    saved_by_emulation(tmp_path / "broken")
    data = tmp_path / "broken" / "3" / "state" / "data-0.bin"
    *rest, last = data.read_bytes()
    data.write_bytes(bytes([*rest, last ^ 1]))
    require_run("tests.checkpoint.processes", tmp_path, devices=2)
    for name in processes.NAMES:
        tx, mesh, begin = emulated(name)
        folder = tmp_path / name
        files = {path.name for path in (folder / "whole" / "3" / "state").iterdir()}
        assert {f"data-{i}.bin" for i in range(2)} | {"index.json"} <= files
        like = processes.tree_of(begin, 0)
        with Checkpoints(folder / "whole", mesh) as checkpoints:
            step, whole = checkpoints.restore(like)
        with Checkpoints(folder / "resumed", mesh) as checkpoints:
            _, resumed = checkpoints.restore(like)
        assert step == 6
        assert training.bits(whole) == training.bits(resumed)
        alone = training.trained(tx, begin, mesh, processes.data(0, 1))
        helpers.assert_close(whole["params"], alone[0], 1e-4)
    tx, mesh, begin = emulated(processes.NAMES[0])
    with Checkpoints(tmp_path / "emulated", mesh) as checkpoints:
        step, back = checkpoints.restore(processes.tree_of(begin, 0))
    assert step == 4
    assert training.bits(back) == training.bits(processes.tree_of(state, 3))
    tx, mesh = training.relaxed(processes.NAMES[0], 2), emulate(2)
    like = processes.tree_of(training.fresh(tx, mesh), 0)
    with Checkpoints(tmp_path / "resized", mesh) as checkpoints:
        _, real = checkpoints.restore(like)
    with Checkpoints(tmp_path / "emulated", mesh) as checkpoints:
        _, resized = checkpoints.restore(like, step=3)
    assert training.bits(real) == training.bits(resized)


@pytest.mark.long
def test_one_process_that_cannot_write_is_said_by_all(tmp_path):
    require_run("tests.checkpoint.failing", tmp_path)
    with Checkpoints(tmp_path, emulate(2), keep=None) as checkpoints:
        assert checkpoints.steps == [10, 20, 25, 30, 35, 50, 60]
        zeros = relaxjax.to_workers(np.zeros(5000, np.float32), emulate(2))
        step, state = checkpoints.restore({"params": zeros, "step": 0})
    assert step == state["step"] == 60
    assert [float(row[0]) for row in state["params"]] == [0, 1]
