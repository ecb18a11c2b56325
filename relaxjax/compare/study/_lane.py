"""A run on its way, from its first point to its record.

The training loss and the validation metric of the workers' consensus are read at each
point. The test metric is read once, at the end of runs for the report: no choice ever
sees it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from relaxjax.compare.kept._records import Record
from relaxjax.compare.kept._statistics import is_worse
from relaxjax.tasks import Task
from relaxjax.workers import consensus


class Lane:
    """What is known of a run so far.

    Attributes:
      heading: what its record says of the run itself.
      task: the task of its seed.
      ended: whether it diverged or was stopped; what comes after is not looked at.
    """

    def __init__(self, heading: Mapping[str, Any], task: Task):
        self.heading, self.task, self.ended = heading, task, False
        self._curve: list[list[float | None]] = []
        self._stopped: int | None = None
        self._state: Sequence[Any] = ()

    def look(
        self,
        done: int,
        loss: float,
        state: Sequence[Any],
        stops: tuple[int, float] | None,
    ) -> None:
        """Reads a point, after `done` steps.

        Args:
          done: number of steps.
          loss: the mean training loss since the point before.
          state: the params, the optimizer's state, and the model's own.
          stops: a step, and the validation metric below which the run stops there.
        """
        if self.ended:
            return
        task = self.task
        metric = metric_of(task.validation, task, state)
        self._curve.append([done, _finite(loss), metric])
        self._state = state
        if metric is None or _finite(loss) is None:
            self.ended = True
        elif stops and done == stops[0] and is_worse(metric, stops[1], task.better):
            self.ended, self._stopped = True, done

    def record(self, shape: Any, bytes_per_step: float) -> Record:
        """How it went, without its time."""
        whole = self._curve[-1][0] == shape.steps
        validation = self._curve[-1][2] if whole else None
        tested = self.heading["phase"] == "report" and validation is not None
        return {
            **self.heading,
            **shape.sizes,
            "curve": self._curve,
            "validation": validation,
            "test": self._test() if tested else None,
            "diverged": self._stopped is None and validation is None,
            "stopped_at": self._stopped,
            "bytes_per_step": bytes_per_step,
        }

    def _test(self) -> float | None:
        return metric_of(self.task.metric, self.task, self._state)


def metric_of(
    metric: Callable[..., jax.Array] | None, task: Task, state: Sequence[Any]
) -> float | None:
    """A metric of the consensus; None if it is not finite."""
    assert metric is not None
    parts = [state[0]] if task.state is None else [state[0], state[2]]
    return _finite(float(metric(*map(consensus, parts))))


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
