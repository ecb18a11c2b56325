"""The training loop: the same lines for every relaxation, on any number of workers."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from relaxjax._core._phases import phase_starts
from relaxjax.cli._devices import own_rows
from relaxjax.cli._errors import Stopped
from relaxjax.cli._resume import Keeper, Progress
from relaxjax.faults import require_replicas
from relaxjax.tasks import Task, train_step_of
from relaxjax.workers import Emulation, consensus, data_parallel, init, spread

_POINTS = 20  # of the curve


class RunWatch(Protocol):
    """Who is told how a run goes."""

    def step(self) -> None:
        """One more step is under way."""

    def point(self, step: int, loss: float, metric: float, speed: float) -> None:
        """The model has been evaluated."""


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
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
    watch: RunWatch,
    stops_before: Callable[[int], bool] = lambda step: False,
    check_every: int | None = None,
    keeper: Keeper | None = None,
) -> RunOutcome:
    """Trains the task's model from its start, or from a checkpoint.

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
      keeper: of checkpoints; None: there are none.

    Raises:
      ReplicaError: they are not.
      Stopped: as `stops_before` said.
    """
    step, now = _begun(task, tx, mesh, seed, batch_size, keeper)
    batches = islice(_own(task.batches(seed, batch_size), mesh), now.done, None)
    for _ in range(now.done):
        watch.step()
    seconds, first = 0.0, now.done
    for end in _points(steps):
        if now.curve and end <= now.curve[-1][0]:
            continue
        began = time.perf_counter()
        while now.done < end:
            batch = next(batches)
            if stops_before(now.done):
                raise Stopped(_stopped(now, steps, keeper))
            *now.state, metrics = step(*now.state, batch)
            now.done += 1
            now.losses.append(metrics["loss"])
            watch.step()
            _after_step(now, check_every, keeper)
        jax.block_until_ready(now.state)
        seconds += time.perf_counter() - began
        metric = float(task.metric(consensus(now.state[0])))
        now.curve.append((end, float(np.mean(now.losses)), metric))
        now.losses.clear()
        watch.point(*now.curve[-1], _rate(end - first, seconds))
    return RunOutcome(
        curve=now.curve,
        steps_per_second=_rate(steps - first, seconds),
        spread=spread(now.state[0]),
    )


def _begun(
    task: Task,
    tx: optax.GradientTransformation,
    mesh: Mesh | Emulation,
    seed: int,
    batch_size: int,
    keeper: Keeper | None,
) -> tuple[Any, Progress]:
    """The step, compiled, and where the run begins."""
    step = data_parallel(train_step_of(task, tx), mesh, donate=True)
    state = init(tx, task.params, mesh)
    _compile(step, state, next(_own(task.batches(seed, batch_size), mesh)))
    return step, keeper.begin(state) if keeper else Progress(state)


def _after_step(now: Progress, check_every: int | None, keeper: Keeper | None) -> None:
    if check_every and now.done % check_every == 0:
        require_replicas(now.state[0], f"params after step {now.done}")
    if keeper:
        keeper.save(now)


def _rate(steps: int, seconds: float) -> float:
    """Steps per second; 0 where none was taken."""
    return steps / seconds if steps else 0.0


def _stopped(now: Progress, steps: int, keeper: Keeper | None) -> str:
    """Saves what there is, and says so."""
    where = f"stopped before step {now.done + 1} of {steps}"
    if keeper is None:
        return f"{where}; nothing is saved without --checkpoint-every"
    keeper.save(now, now=True)
    return f"{where}, and saved: go on with --resume"


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
