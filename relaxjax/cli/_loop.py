"""The training loop: the same lines for every relaxation, on any number of workers."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from relaxjax._clock import phase_starts
from relaxjax._consensus import consensus, spread
from relaxjax._data_parallel import data_parallel
from relaxjax._init import init
from relaxjax._mesh import Emulation
from relaxjax._replicas import require_replicas
from relaxjax.cli._devices import own_rows
from relaxjax.cli._errors import Stopped
from relaxjax.tasks import Task, train_step_of

_POINTS = 20  # of the curve


class Watch(Protocol):
    """Who is told how a run goes."""

    def step(self) -> None:
        """One more step is under way."""

    def point(self, step: int, loss: float, metric: float, speed: float) -> None:
        """The model has been evaluated."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run came to.

    Attributes:
      curve: `(step, training loss since the point before, held-out metric)`.
      steps_per_second: without compilation and evaluation.
      spread: largest difference between two workers' parameters at the end.
    """

    curve: list[tuple[int, float, float]]
    steps_per_second: float
    spread: float


def fit(
    task: Task,
    tx: optax.GradientTransformation,
    mesh: Mesh | Emulation,
    *,
    steps: int,
    seed: int,
    batch_size: int,
    watch: Watch,
    stops_before: Callable[[int], bool] = lambda step: False,
    check_every: int | None = None,
) -> Outcome:
    """Trains the task's model from its start.

    Args:
      task: data and model.
      tx: relaxation and optimizer.
      mesh: where the workers are.
      steps: number of steps.
      seed: of the batches, which do not depend on the number of workers.
      batch_size: rows of each batch, over all workers.
      watch: is told of each step and each point of the curve.
      stops_before: whether to stop before a step, counted from 0.
      check_every: steps after which the workers' models must be equal; None: never.

    Raises:
      ReplicaError: they are not.
      Stopped: as `stops_before` said.
    """
    step = data_parallel(train_step_of(task, tx), mesh, donate=True)
    state = init(tx, task.params, mesh)
    batches = _own(task.batches(seed, batch_size), mesh)
    _compile(step, state, next(_own(task.batches(seed, batch_size), mesh)))
    curve: list[tuple[int, float, float]] = []
    seconds, done = 0.0, 0
    for end in _points(steps):
        losses, began = [], time.perf_counter()
        for number in range(done + 1, end + 1):
            batch = next(batches)
            if stops_before(number - 1):
                raise Stopped(f"stopped before step {number} of {steps}")
            *state, metrics = step(*state, batch)
            losses.append(metrics["loss"])
            watch.step()
            if check_every and number % check_every == 0:
                require_replicas(state[0], f"params after step {number}")
        jax.block_until_ready(state)
        seconds, done = seconds + time.perf_counter() - began, end
        metric = float(task.metric(consensus(state[0])))
        curve.append((end, float(np.mean(losses)), metric))
        watch.point(*curve[-1], end / seconds)
    return Outcome(
        curve=curve, steps_per_second=steps / seconds, spread=spread(state[0])
    )


def _own(batches: Iterator[Any], mesh: Mesh | Emulation) -> Iterator[Any]:
    """This process's rows of each batch."""
    part, parts = own_rows(mesh)

    def cut(x: np.ndarray) -> np.ndarray:
        rows = len(x) // parts
        return x[part * rows : (part + 1) * rows]

    return (jax.tree.map(cut, batch) for batch in batches)


def _compile(step: Any, state: Any, batch: Any) -> None:
    """Takes a step on a copy in each phase, so that no timed step compiles."""
    for copy in phase_starts(state):
        jax.block_until_ready(step(*copy, batch))


def _points(steps: int) -> list[int]:
    """Steps after which the model is evaluated; the last is among them."""
    return sorted({-(-steps * i // _POINTS) for i in range(1, _POINTS + 1)})
