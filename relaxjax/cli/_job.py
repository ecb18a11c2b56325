"""One training job: from what the user wishes to the files it leaves behind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import optax
from jax.sharding import Mesh
from rich.console import Console

from relaxjax import hosts
from relaxjax._mesh import Emulation
from relaxjax._relaxation import Training
from relaxjax._wire import wire_bytes
from relaxjax.checkpoint import plan_of
from relaxjax.cli import _devices, _kept, _ordered, _report, _wishes
from relaxjax.cli._loop import fit
from relaxjax.cli._progress import Bar
from relaxjax.cli._wishes import Wishes
from relaxjax.tasks import TASKS, Task

_CHECKPOINTS = "checkpoints"  # in the folder of the results


@dataclass(frozen=True, kw_only=True)
class Run:
    """A transformation and the workers that use it.

    Attributes:
      name: the relaxation's, or what stands for it.
      tx: the whole transformation.
      mesh: where the workers are.
      period: number of steps over which bytes are averaged.
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
      team: the processes that train together.
      patience: how long they wait for each other, as of `relaxjax.hosts.Watch`.
      check_every: steps after which models are compared; None: never.
      checkpoint_every: steps from one checkpoint to the next; None: never.
      resume: whether to go on from the last one.
      order: of transfers, if one was asked for.
      as_json: whether stdout is for JSON alone.
    """

    task: Task
    runs: tuple[Run, ...]
    steps: int
    seed: int
    batch_size: int
    out: Path
    team: hosts.Hosts
    patience: dict[str, float]
    check_every: int | None = None
    checkpoint_every: int | None = None
    resume: bool = False
    order: _ordered.Order | None = None
    as_json: bool = False


def prepare(wishes: Wishes) -> Job:
    """Checks the wishes, cheapest checks first, and sets everything up.

    Raises:
      ValueError: an unknown name, numbers that do not fit together, a folder that
        cannot be made.
    """
    _wishes.check(wishes)
    patience = {"lost_after": wishes.lost_after, "stuck_after": wishes.stuck_after}
    team = _team()
    hosts.Watch(team, **patience)  # checks them
    mesh = _devices.set_up(wishes.workers, len(team.members))
    rows = _wishes.batch_size(wishes, mesh.size)
    out = wishes.out or Path("runs") / f"{wishes.task}-{wishes.relaxation}-{mesh.size}"
    _make_folder(out)
    if wishes.checkpoint_every is not None:
        _kept.refuse_other_runs(out / _CHECKPOINTS, wishes.resume)
    task = TASKS[wishes.task](wishes.seed)
    steps = wishes.steps or task.steps
    rows = rows or _wishes.rounded_up(task.batch_size, mesh.size)
    order = None
    if wishes.order is not None:
        part = rows // mesh.size
        order = _ordered.find(wishes.order, task, part, wishes.seed)
    names = None if order is None else order.names
    training = _wishes.training(wishes, task, steps, mesh.size, names)
    return Job(
        task=task,
        runs=tuple(_runs(wishes, training, mesh, steps)),
        steps=steps,
        seed=wishes.seed,
        batch_size=rows,
        out=out,
        team=team,
        patience=patience,
        check_every=wishes.check_every,
        checkpoint_every=wishes.checkpoint_every,
        resume=wishes.resume,
        order=order,
        as_json=wishes.as_json,
    )


def _runs(
    wishes: Wishes, training: Training, mesh: Mesh | Emulation, steps: int
) -> Iterator[Run]:
    """What was asked for, and what it is compared with."""
    yield Run(
        name=wishes.relaxation,
        tx=_wishes.wrapped(wishes, _wishes.relaxed(wishes, training)),
        mesh=mesh,
        period=_wishes.period(wishes, steps),
    )
    if wishes.baseline:
        yield Run(
            name="no relaxation",
            tx=_wishes.wrapped(wishes, training.optimizer),
            mesh=_devices.one_worker(),
            period=wishes.accumulate,
        )


def run(job: Job) -> list[_report.Record]:
    """Trains, shows how it goes, and writes run.json and curves.png.

    With several processes, the first one alone prints and writes.

    Returns:
      A record for each run; the one that was asked for comes first.
    """
    first = jax.process_index() == 0
    console = Console(quiet=not first, stderr=job.as_json)
    with hosts.Watch(job.team, **job.patience) as watch:
        records = [
            _train(job, one, console, _stops(watch, i * job.steps))
            for i, one in enumerate(job.runs)
        ]
    if first:
        _report.write(records[0], job.out / "run.json")
        for record in records[1:]:
            _report.write(record, job.out / "one_worker.json")
        _report.plot(records, job.out / "curves.png")
        where = _devices.describe(job.runs[0].mesh)
        console.print(_report.table(records, caption=f"Workers are {where}."))
        console.print(f"run.json and curves.png are in {job.out}", soft_wrap=True)
    if job.order:
        asked = job.runs[0]
        rest = job.batch_size, job.out, console
        _ordered.report(job.order, job.task, asked.tx, asked.mesh, *rest)
    if first and job.as_json:
        print(_report.as_json(records))
    return records


def _team() -> hosts.Hosts:
    """The processes of this job.

    Raises:
      ValueError: they have not found each other.
    """
    try:
        return hosts.join()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def _stops(watch: hosts.Watch, before: int) -> Callable[[int], bool]:
    """Whether to stop before a step of a run; the runs before it had so many."""
    return lambda step: watch.stops_before(before + step)


def _train(
    job: Job, run: Run, console: Console, stops_before: Callable[[int], bool]
) -> _report.Record:
    task = job.task
    noun = "worker" if run.mesh.size == 1 else "workers"
    title = f"{run.name}, {run.mesh.size} {noun}"
    with (
        _kept.keeping(_keeper(job, run)) as keeper,
        Bar(console, title, steps=job.steps, metric_name=task.metric_name) as bar,
    ):
        outcome = fit(
            task,
            run.tx,
            run.mesh,
            steps=job.steps,
            seed=job.seed,
            batch_size=job.batch_size,
            watch=bar,
            stops_before=stops_before,
            check_every=job.check_every,
            keeper=keeper,
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


def _keeper(job: Job, run: Run) -> _kept.Keeper | None:
    """Of the run that was asked for; those it is compared with are taken again."""
    wanted = job.resume or job.checkpoint_every is not None
    if not wanted or run is not job.runs[0]:
        return None
    plan = {
        "the relaxation": run.name,
        "the task": job.task.name,
        "the data (sha256)": job.task.data.sha256,
        "--seed": str(job.seed),
        "--steps": str(job.steps),
        "--batch-size": str(job.batch_size),
        **plan_of(run.tx, job.task.params, run.mesh),
    }
    folder = job.out / _CHECKPOINTS
    return _kept.Keeper(folder, run.mesh, job.checkpoint_every, job.resume, plan)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"--out {out}: cannot make this folder ({error.strerror}); name one that "
            "you may write to"
        ) from error
