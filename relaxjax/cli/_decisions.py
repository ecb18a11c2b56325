"""`relaxjax train` under a controller: its decisions, on disk and in checkpoints."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax import hosts
from relaxjax.cli._errors import user_errors
from relaxjax.cli._job import DECISIONS, Run, TrainJob
from relaxjax.cli._resume import Progress
from relaxjax.controllers import Conductor, load
from relaxjax.tasks import train_step_of
from relaxjax.workers import data_parallel, init


def conductor(job: TrainJob, run: Run, step: Any, now: Progress) -> Conductor | None:
    """What asks the run's controller between steps; None if nothing decides.

    A run that goes on has the decisions that were taken until then.

    Raises:
      ValueError: these are not there, or other numbers than the controller's.
    """
    if run.conducted is None:
        return None
    found = Conductor(*run.conducted, step, partial(_made, job, run))
    if now.done:
        with user_errors():
            taken = load(job.out / DECISIONS)
            now.state = found.go_on(taken, now.done, now.state, now.heard or ())
    return found


def after(
    conductor: Conductor, now: Progress, metrics: Any, batch: Any, out: Path
) -> float:
    """One more step was taken: asks where it is time, and writes what was decided.

    Returns:
      Seconds that a decision took, with compiling what it asks for; 0 if none was due.
    """
    record, step, began = conductor.record, conductor.step, time.perf_counter()
    now.state = conductor.after(now.done, now.state, metrics["loss"])
    now.heard = conductor.losses
    if conductor.record is record:
        return 0.0
    if jax.process_index() == 0:
        with hosts.writing(out / DECISIONS):
            conductor.record.save(out / DECISIONS)
    if conductor.step is not step:  # so that no timed step compiles
        copy = jax.tree.map(jnp.copy, now.state)
        jax.block_until_ready(conductor.step(*copy, batch))
    return time.perf_counter() - began


def _made(job: TrainJob, run: Run, tx: Any) -> tuple[Any, Any]:
    like = jax.eval_shape(lambda: init(tx, job.task.params, run.mesh)[1])
    return data_parallel(train_step_of(job.task, tx), run.mesh, donate=True), like
