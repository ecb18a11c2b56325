"""Training runs of one setting, from a task's start to their records.

Workers are emulated on one device, and looked at at twenty points. Several seeds are
one program, mapped over a second axis of all state: what leaves a GPU idle alone fills
it together.
"""

import functools
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax.compare.kept._records import Record
from relaxjax.compare.study._identity import start
from relaxjax.compare.study._lane import Lane
from relaxjax.compare.study._methods import Planned
from relaxjax.controllers import Conductor
from relaxjax.programs import repeats, wire_bytes
from relaxjax.tasks import Task, next_batch, schedule, train_step_of
from relaxjax.workers import DataParallelStep, data_parallel, emulate, workers_of

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

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers, by the names that records have for them."""
        return {name: x for name, x in self._asdict().items() if name != "make"}


class Program(NamedTuple):
    """A method at one setting: all its seeds share what is compiled for it.

    Attributes:
      tx: the transformation.
      step: the step of one seed; of several, with a second axis on all state.
      bytes_per_step: bytes that a worker sends, of one seed.
      seeds: how many seeds it trains at once; under a controller, one.
      conductor: makes the conductor of a new run; None: no controller decides.
    """

    tx: Any
    step: DataParallelStep
    bytes_per_step: float
    seeds: int = 1
    conductor: Callable[[], Conductor] | None = None


def program(run: Planned, task: Task, shape: Shape, seeds: int = 1) -> Program:
    """Builds a run's method and the step that is to be compiled."""
    mesh = emulate(shape.workers)
    tx = run.method.build(run.learning_rate, run.options, shape.steps, shape.workers)
    one = train_step_of(task, tx)
    if seeds > 1:
        parts = 2 if task.state is None else 3
        one = jax.vmap(one, in_axes=(*[0] * parts, 1))
    step = data_parallel(one, mesh, donate=True)
    sent = _bytes_of_a_step(tx, task, mesh, shape.steps)
    conductor = None
    if run.method.conducted is not None:
        method = run.method.conducted(run.options, shape.steps, shape.workers)
        rates = schedule(run.learning_rate, shape.steps)
        conductor = partial(Conductor.of_task, method, rates, step, task, mesh)
    return Program(tx, step, sent, seeds, conductor)


def _bytes_of_a_step(tx: Any, task: Task, mesh: Any, steps: int) -> float:
    """The mean over a period; or over a run, under a schedule, or if it has phases."""
    if not repeats(tx, task.params, workers_of(mesh, None, "compare")):
        return wire_bytes(tx, task.params, mesh, steps=steps) / steps
    return float(wire_bytes(tx, task.params, mesh))


def trained(
    runs: Sequence[Planned],
    shape: Shape,
    program: Program,
    stops: tuple[int, float] | None = None,
) -> list[Record]:
    """Trains runs of one setting at once, and says how each went.

    A run that diverges ends at the next point.

    Args:
      runs: what to run, which differ in their seeds alone.
      shape: what all runs have in common.
      program: their method, built for as many seeds.
      stops: a step, and the validation metric below which a run stops there.
    """
    began, start = time.perf_counter(), datetime.now(UTC).isoformat("T", "seconds")
    many = program.seeds > 1
    lanes = [Lane(run.heading(), shape.make(run.seed)) for run in runs]
    state = started(program, [lane.task for lane in lanes], shape.workers)
    batches = [
        lane.task.batches(run.seed, shape.batch_size)
        for lane, run in zip(lanes, runs, strict=True)
    ]
    losses: list[jax.Array] = []
    conductor, step = program.conductor and program.conductor(), program.step
    for done in range(1, shape.steps + 1):
        rows = [
            next_batch(lane.task.name, own)
            for lane, own in zip(lanes, batches, strict=True)
        ]
        *state, metrics = step(*state, together(rows, many))
        losses.append(metrics["loss"])
        if conductor:
            state = conductor.after(done, state, metrics["loss"])
            step = conductor.step
        if done % _MOST_IN_FLIGHT == 0:
            jax.block_until_ready(metrics)
        if done not in points(shape.steps):
            continue
        means = np.reshape(np.mean(losses, axis=0), -1)
        for i, lane in enumerate(lanes):
            lane.look(done, float(means[i]), one_of(state, i, many), stops)
        losses.clear()
        if all(lane.ended for lane in lanes):
            break
    seconds = (time.perf_counter() - began) / len(lanes)
    timing = {"began": start, "seconds": seconds, "seeds_at_once": len(lanes)}
    more: Record = {"timing": timing}
    if conductor:
        mesh, task = emulate(shape.workers), lanes[0].task
        sent = wire_bytes(conductor.tx, task.params, mesh, steps=shape.steps)
        more |= {"bytes_per_step": sent / shape.steps}
        more |= {"table": conductor.record.table}
    return [lane.record(shape, program.bytes_per_step) | more for lane in lanes]


def together(trees: Sequence[Any], many: bool) -> Any:
    """Trees of seeds as one with a second axis, or a tree alone as it is."""
    return jax.tree.map(lambda *x: jnp.stack(x, 1), *trees) if many else trees[0]


def one_of(state: Any, index: int, many: bool) -> Any:
    """The state of one of the seeds."""
    return jax.tree.map(lambda x: x[:, index], state) if many else state


@functools.cache
def points(steps: int) -> frozenset[int]:
    """Steps after which a run is looked at; a quarter, half and all are points."""
    return frozenset(max(1, round(steps * i / POINTS)) for i in range(1, POINTS + 1))


def started(program: Program, tasks: Sequence[Task], workers: int) -> Any:
    """The state of each task's run, together."""
    mesh = emulate(workers)
    states = [start(program.tx, task, mesh) for task in tasks]
    return together(states, program.seeds > 1)
