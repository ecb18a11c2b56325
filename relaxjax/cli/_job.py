"""One training job: from what the user wishes to the files it leaves behind."""

from dataclasses import dataclass
from pathlib import Path

import jax
import optax
from jax.sharding import Mesh
from rich.console import Console

from relaxjax import _accumulate, _skip_nonfinite
from relaxjax._mesh import Emulation
from relaxjax._relaxations import parse
from relaxjax._wire import wire_bytes
from relaxjax.cli import _devices, _report
from relaxjax.cli._loop import fit
from relaxjax.cli._progress import Bar
from relaxjax.cli._task import Task
from relaxjax.cli._tasks import TASKS


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The options of `relaxjax train`; None leaves a value to the task."""

    relaxation: str = "all_reduce"
    workers: int | None = None
    task: str = "digits"
    steps: int | None = None
    seed: int = 0
    out: Path | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    bucket_mb: float | None = None
    accumulate: int = 1
    skip_nonfinite: bool = False
    baseline: bool = True


@dataclass(frozen=True, kw_only=True)
class Run:
    """A transformation and the workers that use it.

    Attributes:
      name: the relaxation's, or what stands for it.
      tx: the whole transformation.
      mesh: where the workers are.
      period: number of steps after which the communication repeats.
    """

    name: str
    tx: optax.GradientTransformation
    mesh: Mesh | Emulation
    period: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that is needed to train, checked.

    Attributes:
      task: data and model.
      runs: the run that was asked for, then those it is compared with.
      steps: number of steps of each.
      seed: of the batches.
      batch_size: rows over all workers.
      out: folder for the results; it exists.
    """

    task: Task
    runs: tuple[Run, ...]
    steps: int
    seed: int
    batch_size: int
    out: Path


def prepare(wishes: Wishes) -> Job:
    """Checks the wishes, cheapest checks first, and sets everything up.

    Raises:
      ValueError: an unknown name, or numbers that do not fit together.
      OSError: a folder or a file that cannot be used.
    """
    choice = parse(wishes.relaxation)
    _transformation(wishes, optax.identity(), reduced=True)  # refuses bad options
    mesh = _devices.set_up(wishes.workers)
    task = TASKS[wishes.task](wishes.seed)
    steps = wishes.steps or task.steps
    runs = [
        Run(
            name=wishes.relaxation,
            tx=_transformation(wishes, _optimizer(wishes, task, steps), reduced=True),
            mesh=mesh,
            period=wishes.accumulate * choice.row.period,
        )
    ]
    if wishes.baseline:
        tx = _transformation(wishes, _optimizer(wishes, task, steps), reduced=False)
        mesh_of_one = _devices.one_worker()
        period = wishes.accumulate
        runs.append(Run(name="no relaxation", tx=tx, mesh=mesh_of_one, period=period))
    folder = f"{wishes.task}-{wishes.relaxation}-{mesh.size}"
    out = wishes.out or Path("runs") / folder
    out.mkdir(parents=True, exist_ok=True)
    return Job(
        task=task,
        runs=tuple(runs),
        steps=steps,
        seed=wishes.seed,
        batch_size=_batch_size(wishes.batch_size, task.batch_size, mesh.size),
        out=out,
    )


def run(job: Job) -> list[_report.Record]:
    """Trains, shows how it goes, and writes run.json and curves.png.

    With several processes, the first one alone prints and writes.

    Returns:
      A record for each run; the one that was asked for comes first.
    """
    first = jax.process_index() == 0
    console = Console(quiet=not first)
    records = [_train(job, one, console) for one in job.runs]
    if first:
        _report.write(records[0], job.out / "run.json")
        for record in records[1:]:
            _report.write(record, job.out / "one_worker.json")
        _report.plot(records, job.out / "curves.png")
        where = _devices.describe(job.runs[0].mesh)
        console.print(_report.table(records, caption=f"Workers are {where}."))
        console.print(f"run.json and curves.png are in {job.out}", soft_wrap=True)
    return records


def _train(job: Job, run: Run, console: Console) -> _report.Record:
    task = job.task
    noun = "worker" if run.mesh.size == 1 else "workers"
    title = f"{run.name}, {run.mesh.size} {noun}"
    with Bar(console, title, steps=job.steps, metric_name=task.metric_name) as bar:
        outcome = fit(
            task,
            run.tx,
            run.mesh,
            steps=job.steps,
            seed=job.seed,
            batch_size=job.batch_size,
            watch=bar,
        )
    sent = wire_bytes(run.tx, task.params, run.mesh, steps=run.period)
    _, loss, metric = outcome.curve[-1]
    return _report.Record(
        relaxation=run.name,
        task=task.name,
        workers=run.mesh.size,
        steps=job.steps,
        seed=job.seed,
        loss=loss,
        metric_name=task.metric_name,
        metric=metric,
        bytes_per_step=sent / run.period,
        steps_per_second=outcome.steps_per_second,
        spread=outcome.spread,
        data=task.data,
        curve=outcome.curve,
    )


def _transformation(
    wishes: Wishes, optimizer: optax.GradientTransformation, *, reduced: bool
) -> optax.GradientTransformation:
    """The optimizer, with or without the relaxation, and the wrappers around both."""
    mib = wishes.bucket_mb
    bucket_bytes = None if mib is None else max(1, int(mib * 2**20))
    tx = optimizer
    if reduced:
        choice = parse(wishes.relaxation)
        tx = choice.build(_devices.AXIS, optimizer, bucket_bytes=bucket_bytes)
    if wishes.skip_nonfinite:
        tx = _skip_nonfinite.skip_nonfinite(tx, _devices.AXIS)
    return (
        tx if wishes.accumulate == 1 else _accumulate.accumulate(tx, wishes.accumulate)
    )


def _optimizer(
    wishes: Wishes, task: Task, steps: int
) -> optax.GradientTransformationExtraArgs:
    """AdamW with a short warm-up and a cosine decay over the optimizer's own steps."""
    peak = wishes.learning_rate
    peak = task.learning_rate if peak is None else peak
    updates = -(-steps // wishes.accumulate)
    warmup = updates // 10
    rate = optax.warmup_cosine_decay_schedule(peak / 10, peak, warmup, updates + 1)
    return optax.adamw(rate)


def _batch_size(wished: int | None, default: int, workers: int) -> int:
    """Rows over all workers; by default the task's, rounded up to divide equally."""
    if wished is None:
        return -(-default // workers) * workers
    if wished % workers:
        down, up = wished // workers * workers, -(-wished // workers) * workers
        near = f"{down} or {up}" if down else str(up)
        raise ValueError(
            f"--batch-size {wished} does not divide among {workers} workers; make it a "
            f"multiple of {workers}, such as {near}"
        )
    return wished
