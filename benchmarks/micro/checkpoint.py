"""What asynchronous checkpoints cost: time of training, and bytes on disk.

A run is so many steps, with a save every so often or without any; the two take turns,
and the ratio is of neighbors in time. A run with saves ends when the last is on disk.
Distinct bytes are those of each array's different rows over the workers, by bits.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from jax.sharding import Mesh

from benchmarks.measure import interleaved, quartiles, ratio, text_of
from benchmarks.report import (
    OneTask,
    Plot,
    Result,
    Rounds,
    Run,
    Table,
    Workers,
    benchmark,
)
from relaxjax import data_parallel, init
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.checkpoint import Checkpoints
from relaxjax.cli.common._known import TaskName
from relaxjax.tasks import OPTIMIZERS, TASKS, Task, train_step_of

NAMES = ("all_reduce", "all_reduce+top_k+ef14")
WAYS = ("not saving", "saving")


@benchmark("checkpoint", devices="workers")
def checkpoint(
    run: Run,
    task: OneTask = TaskName.CHARS,
    workers: Workers = 4,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a run.")] = 100,
    every: Annotated[int, typer.Option(min=1, help="Steps between saves.")] = 10,
    rounds: Rounds = 5,
) -> Result:
    """Training with asynchronous checkpoints against training without."""
    mesh = Mesh(np.asarray(jax.devices()[:workers]), ("data",))
    problem = TASKS[task](0)
    rows = {name: _row(name, problem, mesh, steps, every, rounds) for name in NAMES}
    lines = {
        f"{name}, {way}": (range(rounds), row["seconds"][way])
        for name, row in rows.items()
        for way in WAYS
    }
    target = "saving takes at most 1.05 of the time, and 1.05 of distinct bytes"
    title = "Training with and without checkpoints"
    return run.finish(
        {"conditions": run.conditions(), "relaxations": rows, "target": target},
        tables=[_table(rows, steps)],
        plots=[Plot(title, ("run", "seconds"), lines)],
    )


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

        def train(saves: bool) -> None:
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
            "saving": lambda: train(True),
            "not saving": lambda: train(False),
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


def _table(rows: dict[str, dict[str, Any]], steps: int) -> Table:
    def per_step(way: str) -> Callable[[Any], float]:
        return lambda row: 1e3 * quartiles(row["seconds"][way])[1] / steps

    return Table.of(
        "Asynchronous checkpoints",
        [{"relaxation": name, **row} for name, row in rows.items()],
        "relaxation",
        ("ms a step", per_step("not saving")),
        ("with saves", per_step("saving")),
        ("ratio", lambda row: text_of(row["ratio"])),
        ("ms of save()", lambda row: 1e3 * quartiles(row["save_seconds"])[1]),
        ("state MB", lambda row: row["state_bytes"] / 1e6),
        ("distinct MB", lambda row: row["distinct_bytes"] / 1e6),
        ("on disk / distinct", lambda row: row["stored_bytes"] / row["distinct_bytes"]),
    )
