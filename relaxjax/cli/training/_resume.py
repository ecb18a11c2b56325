"""Checkpoints of `relaxjax train`: the progress of a run, and which run it is.

Under a controller its decisions stand beside them, and go on with the run.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax import hosts
from relaxjax.checkpoint import Checkpoints, latest
from relaxjax.cli.common._errors import user_errors
from relaxjax.controllers import Conducted, Conductor, load
from relaxjax.tasks import Task

DECISIONS = "decisions.json"  # of a controller, in the folder of the results


@dataclass
class Progress:
    """A run so far.

    Attributes:
      state: params and optimizer state.
      done: number of steps taken, and of batches seen.
      curve: rows of step, training loss since the row before, held-out metric.
      losses: the losses of the steps since the last point of the curve.
      heard: those since a controller's last decision; None: there is no controller.
    """

    state: Any
    done: int = 0
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    heard: list[Any] | None = None

    def tree(self) -> dict[str, Any]:
        """The arrays of a checkpoint."""
        return {
            "state": self.state,
            "batches": self.done,
            "curve": np.asarray(self.curve, np.float64),
            "losses": _floats(self.losses),
            **({} if self.heard is None else {"heard": _floats(self.heard)}),
        }


def _floats(losses: list[Any]) -> np.ndarray:
    return np.asarray(jax.device_get(losses), np.float64)


class Keeper:
    """Saves a run's progress `every` so many steps; None: never.

    A checkpoint is of the same run if it agrees with the `plan`.
    """

    def __init__(
        self,
        folder: Path,
        mesh: Any,
        every: int | None,
        resume: bool,
        plan: Mapping[str, str],
    ):
        every = sys.maxsize if every is None else every
        with user_errors():  # another run may write there
            self._checkpoints = Checkpoints(folder, mesh, every=every, plan=plan)
        self._resume = resume
        hosts.keeps(
            lambda: kept_in(folder),
            nothing="nothing was written, for no checkpoint was due yet",
        )

    def begin(self, state: Any, heard: list[Any] | None = None) -> Progress:
        """The run's start, or its last checkpoint; `heard` is [] under a controller."""
        start = Progress(tuple(state), heard=heard)
        if not self._resume:
            return start
        with user_errors():
            done, tree = self._checkpoints.restore(start.tree())
        if self._checkpoints.report:
            print(self._checkpoints.report, file=sys.stderr)
        curve = [(int(t), loss, metric) for t, loss, metric in tree["curve"].tolist()]
        rest = list(tree["losses"]), None if heard is None else list(tree["heard"])
        return Progress(tree["state"], done, curve, *rest)

    def save(self, progress: Progress, *, now: bool = False) -> None:
        """Saves when a checkpoint is due, or at once."""
        if now or self._checkpoints.is_due(progress.done):
            self._checkpoints.save(progress.done, progress.tree(), now=now)

    def close(self) -> None:
        """Waits until all is on disk."""
        self._checkpoints.close()


def kept_in(folder: Path) -> str:
    """The last checkpoint that is whole, in words; "" if no checkpoint is."""
    if (step := latest(folder)) is None:
        return ""
    return f"the checkpoint of step {step} is in {folder}: go on with --resume"


def refuse_checkpoints(folder: Path) -> None:
    """Refuses to start afresh where there are checkpoints already.

    Raises:
      ValueError: there are some.
    """
    if latest(folder) is not None:
        raise ValueError(
            f"--out {folder.parent}: {folder} holds checkpoints of an earlier run. "
            "Go on from them with --resume, name another --out, or remove the folder"
        )


def conductor(
    conducted: tuple[Conducted, Any],
    task: Task,
    mesh: Any,
    step: Any,
    out: Path,
    now: Progress,
) -> Conductor:
    """What asks a run's controller between its steps.

    A run that goes on has the decisions that were taken until then.

    Raises:
      ValueError: these are not there, or other numbers than the controller's.
    """
    found = Conductor.of_task(*conducted, step, task, mesh)
    if not now.done:
        _write(found, out)
        return found
    with user_errors():
        taken = load(out / DECISIONS)
        now.state = found.go_on(taken, now.done, now.state, now.heard or ())
    return found


def ask(
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
    _write(conductor, out)
    if conductor.step is not step:  # so that no timed step compiles
        copy = jax.tree.map(jnp.copy, now.state)
        jax.block_until_ready(conductor.step(*copy, batch))
    return time.perf_counter() - began


def _write(conductor: Conductor, out: Path) -> None:
    """Writes the decisions so far; with several processes, only the first one does."""
    if jax.process_index() == 0:
        with hosts.writing(out / DECISIONS):
            conductor.save(out / DECISIONS)
