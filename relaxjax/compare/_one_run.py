"""One training run, from a task's start to its record.

Workers are emulated on one device; the training loss and the validation metric of the
workers' consensus are read at twenty points. The test metric is read once, at the end
of runs for the report: no choice ever sees it.
"""

import functools
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import jax
import numpy as np

from relaxjax.compare._records import Record
from relaxjax.compare._runs import Planned, is_worse
from relaxjax.programs import wire_bytes
from relaxjax.tasks import Task, train_step_of
from relaxjax.workers import consensus, data_parallel, emulate, init, to_workers

POINTS = 20
_MOST_IN_FLIGHT = 16


class Shape(NamedTuple):
    """What all runs of a study have in common.

    Attributes:
      make: the task of a seed, with validation data.
      steps: steps of a run.
      workers: number of workers.
      batch_size: rows of a step, over all workers.
    """

    make: Callable[[int], Task]
    steps: int
    workers: int
    batch_size: int


class Program(NamedTuple):
    """A method at one setting: all its seeds share what is compiled for it."""

    tx: Any
    step: Callable[..., Any]
    bytes_per_step: float


def program(run: Planned, task: Task, shape: Shape) -> Program:
    """Builds a run's method and the step that is to be compiled."""
    mesh = emulate(shape.workers)
    tx = run.method.build(run.learning_rate, run.options, shape.steps, shape.workers)
    step = data_parallel(train_step_of(task, tx), mesh, donate=True)
    return Program(tx, step, float(wire_bytes(tx, task.params, mesh)))


def trained(
    run: Planned,
    shape: Shape,
    program: Program,
    stops: tuple[int, float] | None = None,
) -> Record:
    """Trains, and says how it went; a run that diverges ends at the next point.

    Args:
      run: what to run.
      shape: what all runs have in common.
      program: its method, built.
      stops: a step, and the validation metric below which the run stops there.
    """
    began, start = time.perf_counter(), datetime.now(UTC).isoformat("T", "seconds")
    task = shape.make(run.seed)
    state = _start(program.tx, task, shape.workers)
    batches = task.batches(run.seed, shape.batch_size)
    curve: list[list[float | None]] = []
    losses: list[jax.Array] = []
    stopped = None
    for done in range(1, shape.steps + 1):
        *state, metrics = program.step(*state, next(batches))
        losses.append(metrics["loss"])
        if done % _MOST_IN_FLIGHT == 0:
            jax.block_until_ready(metrics)
        if done not in points(shape.steps):
            continue
        loss, metric = float(np.mean(losses)), _metric(task.validation, task, state)
        curve.append([done, _finite(loss), metric])
        losses.clear()
        if metric is None or _finite(loss) is None:
            break
        if stops and done == stops[0] and is_worse(metric, stops[1], task.better):
            stopped = done
            break
    validation = curve[-1][2] if curve[-1][0] == shape.steps else None
    tested = run.phase == "report" and validation is not None
    return {
        "method": run.method.label,
        "phase": run.phase,
        "seed": run.seed,
        "learning_rate": run.learning_rate,
        "options": run.options,
        "steps": shape.steps,
        "workers": shape.workers,
        "batch_size": shape.batch_size,
        "curve": curve,
        "validation": validation,
        "test": _metric(task.metric, task, state) if tested else None,
        "diverged": stopped is None and validation is None,
        "stopped_at": stopped,
        "bytes_per_step": program.bytes_per_step,
        "timing": {"began": start, "seconds": time.perf_counter() - began},
    }


@functools.cache
def points(steps: int) -> frozenset[int]:
    """Steps after which a run is looked at; a quarter, half and all are points."""
    return frozenset(max(1, round(steps * i / POINTS)) for i in range(1, POINTS + 1))


def _start(tx: Any, task: Task, workers: int) -> list[Any]:
    """The params, the optimizer's state, and the model's own state if it has one."""
    mesh = emulate(workers)
    state = list(init(tx, task.params, mesh))
    if task.state is not None:
        state.append(to_workers(task.state, mesh))
    return state


def _metric(
    metric: Callable[..., jax.Array] | None, task: Task, state: list[Any]
) -> float | None:
    """A metric of the consensus; None if it is not finite."""
    assert metric is not None
    parts = [state[0]] if task.state is None else [state[0], state[2]]
    return _finite(float(metric(*map(consensus, parts))))


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
