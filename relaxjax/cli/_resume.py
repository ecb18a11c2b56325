"""Checkpoints of `relaxjax train`: what a run has come to, and which run it is."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from relaxjax.checkpoint import Checkpoints
from relaxjax.cli._errors import user_errors


@dataclass
class Progress:
    """A run so far.

    Attributes:
      state: params and optimizer state.
      done: number of steps taken, and of batches seen.
      curve: `(step, training loss since the point before, held-out metric)`.
      losses: of the steps since the last point.
    """

    state: Any
    done: int = 0
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)

    def tree(self) -> dict[str, Any]:
        """As it is saved."""
        return {
            "state": self.state,
            "batches": self.done,
            "curve": np.asarray(self.curve, np.float64),
            "losses": np.asarray(jax.device_get(self.losses), np.float32),
        }


class Keeper:
    """Saves a run's progress now and then.

    Args:
      folder: of its checkpoints.
      mesh: where the workers are.
      every: steps from one save to the next; None: never.
      resume: whether to begin where the last checkpoint is.
      plan: what the run is.
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
        self._checkpoints = Checkpoints(folder, mesh, every=every, plan=plan)
        self._resume = resume

    def begin(self, state: Any) -> Progress:
        """The run's start, or where its last checkpoint is."""
        start = Progress(tuple(state))
        if not self._resume:
            return start
        with user_errors():
            done, tree = self._checkpoints.restore(start.tree())
        if self._checkpoints.report:
            print(self._checkpoints.report, file=sys.stderr)
        curve = [(int(t), loss, metric) for t, loss, metric in tree["curve"].tolist()]
        return Progress(tree["state"], done, curve, list(tree["losses"]))

    def save(self, progress: Progress, *, now: bool = False) -> None:
        """Saves if it is time to; `now`: whether it is or not."""
        if now or self._checkpoints.is_due(progress.done):
            self._checkpoints.save(progress.done, progress.tree(), now=now)

    def close(self) -> None:
        """Waits until all is on disk."""
        self._checkpoints.close()


@contextmanager
def keeping(keeper: Keeper | None) -> Iterator[Keeper | None]:
    """The keeper, closed at the end, whatever happens."""
    try:
        yield keeper
    finally:
        if keeper:
            keeper.close()


def refuse_other_runs(folder: Path, resume: bool) -> None:
    """Refuses to begin anew where there are checkpoints already.

    Raises:
      ValueError: there are.
    """
    if not resume and folder.is_dir() and any(folder.iterdir()):
        raise ValueError(
            f"--checkpoint-every: {folder} holds checkpoints of an earlier run. Go on "
            "from them with --resume, name another --out, or remove the folder"
        )
