"""The training loop: the same lines for every relaxation, on any number of workers."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as ProgressBar

from relaxjax import hosts
from relaxjax._core._phases import phase_starts
from relaxjax.cli.common._devices import own_rows
from relaxjax.cli.common._errors import Stopped, user_errors
from relaxjax.cli.training._job import Run, TrainJob
from relaxjax.cli.training._resume import Keeper, Progress, ask, conductor
from relaxjax.compare import start
from relaxjax.faults import require_replicas
from relaxjax.tasks import next_batch, train_step_of
from relaxjax.workers import Emulation, consensus, data_parallel, spread

_POINTS = 20  # of the curve


class Bar:
    """Progress of one run; a context manager."""

    def __init__(self, console: Console, title: str, *, steps: int, metric_name: str):
        self._console = console
        self._title = title
        self._metric_name = metric_name.replace("_", " ")
        self._progress = ProgressBar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(title, total=steps, status="compiling")

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._progress.stop()

    def step(self) -> None:
        """Shows that one more step is under way."""
        self._progress.advance(self._task)

    def point(self, step: int, loss: float, metric: float, speed: float) -> None:
        """Shows what the evaluation of the model has found."""
        status = (
            f"loss {loss:.4f}, {self._metric_name} {metric:.4f}, {speed:.1f} steps/s"
        )
        self._progress.update(self._task, status=status)
        if not self._console.is_terminal:
            self._console.print(f"{self._title}: step {step}, {status}", soft_wrap=True)


def fit(
    job: TrainJob,
    run: Run,
    bar: Bar,
    stops_before: Callable[[int], bool],
    keeper: Keeper | None,
) -> tuple[list[tuple[int, float, float]], float, float, Any]:
    """Trains one of the job's runs from its start, or from the keeper's checkpoint.

    Returns:
      The curve, rows of step, training loss since the row before and held-out metric;
      steps per second without compilation and evaluation; the largest difference
      between two workers' parameters at the end; and, under a controller, the
      transformation of its table, else None.

    Raises:
      ReplicaError: the workers' models are not equal.
      Stopped: `stops_before` asked for it, at a step counted from 0.
    """
    step, now = _start(job, run, keeper)
    asks = run.conducted and conductor(
        run.conducted, job.task, run.mesh, step, job.out, now
    )
    whole = job.task.batches(job.options.seed, job.batch_size)
    batches = islice(_own_part(whole, run.mesh), now.done, None)
    for _ in range(now.done):
        bar.step()
    seconds, first = 0.0, now.done
    for end in _stoppable(_points(job.steps), keeper):
        if now.curve and end <= now.curve[-1][0]:
            continue
        began = time.perf_counter()
        while now.done < end:
            with user_errors():
                batch = next_batch(job.task.name, batches)
            if stops_before(now.done):
                raise Stopped(_save_and_say(now, job.steps, keeper))
            *now.state, metrics = (asks.step if asks else step)(*now.state, batch)
            now.done += 1
            now.losses.append(metrics["loss"])
            if asks:
                began += ask(asks, now, metrics, batch, job.out)
            bar.step()
            _after_step(now, job.options.check_every, keeper)
        jax.block_until_ready(now.state)
        seconds += time.perf_counter() - began
        metric = float(job.task.metric(*_models(now.state)))
        now.curve.append((end, float(np.mean(now.losses, dtype=np.float64)), metric))
        now.losses.clear()
        bar.point(*now.curve[-1], _rate(end - first, seconds))
    rate = _rate(job.steps - first, seconds)
    return now.curve, rate, spread(now.state[0]), asks.tx if asks else None


def _stoppable(points: list[int], keeper: Keeper | None) -> Iterator[int]:
    """The points; until the last, Ctrl-C stops between steps where that saves or tells.

    With a keeper there is something to save, and other processes stop too.
    """
    if keeper is None and jax.process_count() == 1:
        yield from points
        return
    with hosts.listens("stops before the next step; a second Ctrl-C ends at once"):
        yield from points
    hosts.end_if_asked()


def _models(state: Any) -> tuple[Any, ...]:
    """One model of all workers' models, and its own state if it has one."""
    params, _, *own = state
    return tuple(map(consensus, (params, *own)))


def _start(job: TrainJob, run: Run, keeper: Keeper | None) -> tuple[Any, Progress]:
    """The compiled step, and the progress that the run starts from."""
    step = data_parallel(train_step_of(job.task, run.tx), run.mesh, donate=True)
    with user_errors():
        state = start(run.tx, job.task, run.mesh)
    batches = job.task.batches(job.options.seed, job.batch_size)
    batch = next(_own_part(batches, run.mesh))
    for copy in phase_starts(state):  # so that no timed step compiles
        jax.block_until_ready(step(*copy, batch))
    heard = None if run.conducted is None else []
    begun = keeper.begin(state, heard) if keeper else Progress(state, heard=heard)
    return step, begun


def _after_step(now: Progress, check_every: int | None, keeper: Keeper | None) -> None:
    if check_every and now.done % check_every == 0:
        require_replicas(now.state[0], f"params after step {now.done}")
    if keeper:
        keeper.save(now)


def _rate(steps: int, seconds: float) -> float:
    """Steps per second; 0 without a step."""
    return steps / seconds if steps else 0.0


def _save_and_say(now: Progress, steps: int, keeper: Keeper | None) -> str:
    """Saves the progress, and says where the run stopped."""
    where = f"stopped before step {now.done + 1} of {steps}"
    if keeper is None:
        return f"{where}; {hosts.kept()}"
    keeper.save(now, now=True)
    return f"{where}, and saved: go on with --resume"


def _own_part(batches: Iterator[Any], mesh: Mesh | Emulation) -> Iterator[Any]:
    """This process's rows of each batch."""
    part, parts = own_rows(mesh)

    def cut(x: np.ndarray) -> np.ndarray:
        rows = len(x) // parts
        return x[part * rows : (part + 1) * rows]

    return (jax.tree.map(cut, batch) for batch in batches)


def _points(steps: int) -> list[int]:
    """Steps after which the model is evaluated; the last is among them."""
    return sorted({-(-steps * i // _POINTS) for i in range(1, _POINTS + 1)})
