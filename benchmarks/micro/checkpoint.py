"""What asynchronous checkpoints cost: time of training, and bytes on disk.

A run is so many steps, with a save every so often, or with none; the two take turns,
and the ratio is of neighbours in time. A run with saves ends when the last is on disk.
Distinct bytes are those of each array's different rows over the workers, by bits.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from benchmarks.measure import interleaved, quartiles, ratio
from benchmarks.report import conditions, plot, save, show
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.checkpoint import Checkpoints
from relaxjax.tasks import OPTIMIZERS, TASKS, Task, train_step_of
from relaxjax.workers._data_parallel import data_parallel
from relaxjax.workers._init import init

NAMES = ("all_reduce", "all_reduce+top_k+ef14")


def checkpoint(
    *,
    task: str = "chars",
    workers: int = 4,
    steps: int = 100,
    every: int = 10,
    rounds: int = 5,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Measures the stall of training by saves, and the size of what is saved.

    Args:
      task: name of the task.
      workers: devices.
      steps: of a run.
      every: steps from one save to the next.
      rounds: pairs of runs of each relaxation.
      out: folder for JSON and plot.

    Returns:
      What was measured, as saved.
    """
    mesh = Mesh(np.asarray(jax.devices()[:workers]), ("data",))
    made = TASKS[task](0)
    rows = {name: _row(name, made, mesh, steps, every, rounds) for name in NAMES}
    result = {
        "conditions": conditions(
            task=task, workers=workers, steps=steps, every=every, rounds=rounds
        ),
        "relaxations": rows,
        "target": "saving takes at most 1.05 of the time, and 1.05 of distinct bytes",
    }
    _report(result, out)
    return result


def _row(
    name: str, task: Task, mesh: Mesh, steps: int, every: int, rounds: int
) -> dict[str, Any]:
    choice = parse(name)
    optimizer = OPTIMIZERS[choice.row.parent].make(1e-3)
    tx = choice.build("data", Training(optimizer, 1e-3, steps, mesh.size))
    step = data_parallel(train_step_of(task, tx), mesh, donate=True)
    batch = next(task.batches(0, task.batch_size))
    state = tuple(init(tx, task.params, mesh))
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(folder, mesh, every=every, keep=1)
        count, calls = 0, []

        def run(saves: bool) -> None:
            nonlocal state, count
            for _ in range(steps):
                *state, _ = step(*state, batch)
                count += 1
                if saves and checkpoints.is_due(count):
                    jax.block_until_ready(state)  # which a save would wait for
                    began = time.perf_counter()
                    checkpoints.save(count, state)
                    calls.append(time.perf_counter() - began)
            jax.block_until_ready(state)
            checkpoints.wait()

        runs: dict[str, Callable[[], Any]] = {
            "saving": lambda: run(True),
            "not saving": lambda: run(False),
        }
        seconds = interleaved(runs, rounds)
        checkpoints.save(count, state, now=True)
        checkpoints.close()
        stored = sum(x.stat().st_size for x in Path(folder).rglob("*") if x.is_file())
    return {
        "seconds": seconds,
        "save_seconds": calls,
        "ratio": ratio(seconds["saving"], seconds["not saving"])._asdict(),
        "state_bytes": sum(x.nbytes for x in jax.tree.leaves(state)),
        "distinct_bytes": distinct_bytes(state),
        "stored_bytes": stored,
    }


def distinct_bytes(state: Any) -> int:
    """Bytes of each array's different rows, by bits."""
    rows = (
        {row.tobytes() for row in np.asarray(leaf)} for leaf in jax.tree.leaves(state)
    )
    return sum(len(row) for different in rows for row in different)


def _report(result: dict[str, Any], out: str) -> None:
    print(result["conditions"])
    steps, rows = result["conditions"]["steps"], result["relaxations"]
    table = []
    for name, row in rows.items():
        found = row["ratio"]
        medians = [
            1e3 * quartiles(row["seconds"][k])[1] / steps
            for k in ("not saving", "saving")
        ]
        spread = f"{found['median']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"
        sizes = [row[k] / 1e6 for k in ("state_bytes", "distinct_bytes")]
        share = row["stored_bytes"] / row["distinct_bytes"]
        call = 1e3 * quartiles(row["save_seconds"])[1]
        table.append((name, *medians, spread, call, *sizes, f"{share:.4f}"))
    columns = (
        "relaxation",
        "ms a step",
        "with saves",
        "ratio",
        "ms of save()",
        "state MB",
        "distinct MB",
        "on disk / distinct",
    )
    show("Asynchronous checkpoints", columns, table)
    path = save(result, out, "checkpoint")
    ways = ("not saving", "saving")
    lines = {
        f"{name}, {way}": (range(len(row["seconds"][way])), row["seconds"][way])
        for name, row in rows.items()
        for way in ways
    }
    plot(path, "Training with and without checkpoints", ("run", "seconds"), lines)
