"""Trains in several processes, stops in the middle, and goes on; run by a test."""

import sys
from contextlib import redirect_stderr, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

import relaxjax
from relaxjax import hosts
from relaxjax._core.foreign import _together
from relaxjax.checkpoint import Checkpoints, _reader
from tests import helpers
from tests.checkpoint import training

NAMES = ("all_reduce+top_k+ef14", "gossip+sign", "parameter_server")
ROWS = 8


def tree_of(state: Any, step: int) -> dict[str, Any]:
    return {"params": state[0], "opt_state": state[1], "batches": step}


def data(part: int, parts: int) -> list[Any]:
    """This process's rows of each batch."""
    rows = slice(part * ROWS // parts, (part + 1) * ROWS // parts)
    batches = helpers.batches(training.STEPS, ROWS)
    return [{k: x[rows] for k, x in batch.items()} for batch in batches]


def halves(name: str, folder: Path, mesh: Any, part: int, parts: int) -> None:
    """Checkpoints of step 3 and of the end; and of the end of a resumed run."""
    tx, batches = training.relaxed(name, mesh.size), data(part, parts)
    begin = tree_of(training.fresh(tx, mesh), 0)
    with (
        Checkpoints(folder / "whole", mesh) as whole,
        Checkpoints(folder / "resumed", mesh) as resumed,
    ):
        state = begin["params"], begin["opt_state"]
        state = training.trained(tx, state, mesh, batches[:3])
        whole.save(3, tree_of(state, 3))
        state = training.trained(tx, state, mesh, batches[3:], donate=True)
        whole.save(6, tree_of(state, 6))
        step, tree = whole.restore(begin, step=3)
        assert step == tree["batches"] == 3
        state = tree["params"], tree["opt_state"]
        resumed.save(6, tree_of(training.trained(tx, state, mesh, batches[3:]), 6))


def rows(mesh: Any, step: int) -> dict[str, Any]:
    """Rows that differ by worker and step."""
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    whole = np.arange(400.0, dtype=np.float32).reshape(4, 100) + 1000 * step
    return {"x": jax.make_array_from_callback(whole.shape, spec, lambda i: whole[i])}


def many(folder: Path, mesh: Any) -> None:
    """More checkpoints than are kept, at once and after a resume; each is whole."""
    for first in (1, 7):
        with Checkpoints(folder, mesh, keep=2) as saves:
            for step in range(first, first + 6):
                assert saves.save(step, rows(mesh, step))
            for kept in saves.steps:
                _, found = saves.restore(rows(mesh, 0), step=kept)
                gap = jax.jit(lambda a, b: abs(a - b).max())
                assert float(gap(found["x"], rows(mesh, kept)["x"])) == 0
            saves.restore(rows(mesh, 0))


def removed(folder: Path, mesh: Any, process: int) -> None:
    """The run keeps one, and removes it before a reader on all processes has it."""
    with (
        Checkpoints(folder, mesh, keep=1) as run,
        Checkpoints(folder, mesh, read_only=True) as reader,
    ):
        run.save(1, rows(mesh, 1))
        run.wait()
        whole, seen = reader._store.steps, []

        def steps() -> list[int]:
            seen.append(whole())
            if len(seen) == 1:
                run.save(2, rows(mesh, 2))
                run.wait()
            return seen[-1]

        with mock.patch.object(reader._store, "steps", steps):
            assert reader.restore(rows(mesh, 0))[0] == 2
        assert seen == [[1], [2]]
        if process == 1:  # which alone finds it gone
            real, once = _reader._unless_removed, [None]
            found = mock.patch.object(
                _reader,
                "_unless_removed",
                lambda *files: once.pop() if once else real(*files),
            )
            with found:
                step = reader.restore(rows(mesh, 0))[0]
        else:
            step = reader.restore(rows(mesh, 0))[0]
        assert step == 2


def of_one(folder: Path, mesh: Any, process: int) -> None:
    """What process 1 cannot do, both say: it by its own error, and 0 by its name."""
    told = "" if process else "process 1 cannot: {}.*"
    with Checkpoints(folder, mesh, plan={"rate": "0.1"}) as saves:
        theirs = {**rows(mesh, 1), "own": object() if process else 7}
        own = told.format("TypeError") + "'own' is a object"
        with pytest.raises(TypeError if process else ValueError, match=own):
            saves.save(1, theirs)
        few = {"x": np.ones(3)} if process else rows(mesh, 1)
        none = told.format("ValueError") + "the state has no arrays of workers"
        with pytest.raises(ValueError, match=none):
            saves.save(1, few)
        assert saves.save(1, rows(mesh, 1))
        assert saves.restore(rows(mesh, 0))[0] == 1
    rate = told.format("ValueError") + "rate was 0.1 and is 0.2"
    with Checkpoints(folder, mesh, plan={"rate": f"0.{process + 1}"}) as saves:
        with pytest.raises(ValueError, match=rate):
            saves.restore(rows(mesh, 0))
        assert saves.steps == [1]


def alone(folder: Path, mesh: Any, process: int) -> None:
    """Process 1 asks alone, and gives up; process 0 is told when it comes."""
    with suppress(KeyError), Checkpoints(folder, mesh) as saves:
        assert saves.save(1, rows(mesh, 1))
        saves.wait()
        waits = mock.patch.multiple(_together, PATIENCE=1.0, NOTICE=0.1)
        why = "has given up" if process == 0 else "has waited 1 s for all of"
        if process == 0:
            relaxjax.spread(rows(mesh, 1))  # until process 1 has given up
        refused = pytest.raises(RuntimeError, match=f"Checkpoints: .*{why}")
        with waits, redirect_stderr(StringIO()) as said, refused:
            saves.restore(rows(mesh, 0))
        if process == 1:
            assert "process 1 has waited 0.1 s, of 1, for all of" in said.getvalue()
            relaxjax.spread(rows(mesh, 1))
        raise KeyError


def of_the_loop(folder: Path, mesh: Any, process: int) -> None:
    """Values of the loop are one for all processes; steps may be large."""
    with Checkpoints(folder, mesh) as saves:
        for own in (process, np.arange(3) + process, f"of process {process}"):
            with pytest.raises(
                ValueError, match=r"save: processes disagree on 'own': "
            ):
                saves.save(1, {**rows(mesh, 1), "own": own})
        assert saves.save(2**31 + 5, {**rows(mesh, 1), "own": 7, "text": "x" * 999})
        assert saves.steps == [2**31 + 5]


def main(folder: Path) -> None:
    here = hosts.join()
    mesh = helpers.mesh_of(4)
    many(folder / "many", mesh)
    removed(folder / "removed", mesh, here.process_id)
    of_one(folder / "one", mesh, here.process_id)
    of_the_loop(folder / "loop", mesh, here.process_id)
    for name in NAMES:
        halves(name, folder / name, mesh, here.process_id, len(here.members))
    # A checkpoint of emulated workers, restored on devices of several processes.
    tx = training.relaxed(NAMES[0], 4)
    like = tree_of(training.fresh(tx, mesh), 0)
    with Checkpoints(folder / "emulated", mesh) as checkpoints:
        step, tree = checkpoints.restore(like)
        assert step == 3
        assert checkpoints.save(4, tree)
    with (
        Checkpoints(folder / "broken", mesh) as checkpoints,
        pytest.raises(ValueError, match="not as it was written"),
    ):
        checkpoints.restore(like)
    assert relaxjax.spread(tree["params"]) == 0
    with pytest.raises(ValueError, match=r"is not the folder that processes \[1"):
        Checkpoints(folder / f"of process {here.process_id}", mesh)
    fewer(folder)
    alone(folder / "alone", mesh, here.process_id)


def fewer(folder: Path) -> None:
    """A checkpoint of four emulated workers, restored on two processes."""
    devices = [next(d for d in jax.devices() if d.process_index == i) for i in range(2)]
    mesh = jax.sharding.Mesh(devices, ("data",))
    tx = training.relaxed(NAMES[0], 2)
    with (
        Checkpoints(folder / "resized", mesh) as now,
        Checkpoints(folder / "emulated", mesh) as before,
    ):
        step, tree = before.restore(tree_of(training.fresh(tx, mesh), 0), step=3)
        assert before.report
        now.save(step, tree)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
