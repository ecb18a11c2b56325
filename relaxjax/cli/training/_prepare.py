"""From the options of a training job, checked, to all that it needs."""

import os
from collections.abc import Iterator
from pathlib import Path

from jax.sharding import Mesh

from relaxjax import hosts
from relaxjax._core._relaxation import Training
from relaxjax._core.foreign._folders import local_path
from relaxjax.checkpoint import latest
from relaxjax.cli.common import _devices
from relaxjax.cli.options._train import TrainOptions
from relaxjax.cli.training import _checked, _order_report, _resume
from relaxjax.cli.training._job import CHECKPOINTS, Run, TrainJob
from relaxjax.tasks import Task, load
from relaxjax.workers import Emulation

RESULTS = ("run.json", "one_worker.json", "curves.png", "order.json", _resume.DECISIONS)


def prepare(options: TrainOptions) -> TrainJob:
    """Checks the options, cheapest checks first, and sets everything up.

    Raises:
      ValueError: an unknown name, numbers that do not fit together, a folder that
        cannot be made.
    """
    _checked.check(options)
    patience = {"lost_after": options.lost_after, "stuck_after": options.stuck_after}
    team = _team()
    hosts.Watch(team, **patience)  # checks them
    mesh = _devices.set_up(options.workers, len(team.members))
    rows = _checked.batch_size(options, mesh.size)
    name = f"{_label(options.task)}-{options.relaxation}-{mesh.size}"
    out = local_path("train", "out", options.out or Path("runs") / name)
    goes_on = options.resume and latest(out / CHECKPOINTS) is not None
    if not goes_on:
        _refuse_results(out, options.force, resume=options.resume)
        _resume.refuse_checkpoints(out / CHECKPOINTS)
    task, digest = _task(options)
    _make_folder(out, goes_on)
    steps = options.steps or task.steps
    rows = rows or _checked.rounded_up(task.batch_size, mesh.size)
    order = None
    if options.order is not None:
        part = rows // mesh.size
        order = _order_report.find(options.order, task, part, options.seed)
    names = None if order is None else order.names
    training = _checked.training(options, task, steps, mesh.size, names)
    return TrainJob(
        options=options,
        task=task,
        runs=tuple(_runs(options, training, mesh, steps)),
        steps=steps,
        batch_size=rows,
        out=out,
        team=team,
        patience=patience,
        order=order,
        task_sha256=digest,
    )


def _runs(
    options: TrainOptions, training: Training, mesh: Mesh | Emulation, steps: int
) -> Iterator[Run]:
    """The run that was asked for, and what it is compared with."""
    relaxed = _checked.relaxed(options, training)
    method = _checked.conducted(options, training)
    yield Run(
        name=options.relaxation,
        tx=_checked.wrapped(options, relaxed),
        mesh=mesh,
        period=_checked.period(options, steps),
        conducted=(method, training.learning_rate) if method else None,
    )
    if not options.no_baseline:
        yield Run(
            name="no relaxation",
            tx=_checked.wrapped(options, training.optimizer),
            mesh=_devices.one_worker(),
            period=options.accumulate,
        )


def _label(task: str) -> str:
    """A name for a folder: `data/my_task.py:other` is `my_task-other`."""
    return Path(task).name.replace(".py:", "-").removesuffix(".py")


def _task(options: TrainOptions) -> tuple[Task, str]:
    """The task, and the digest of its file; a ValueError if it cannot be loaded."""
    try:
        make, digest = load(options.task)
        return make(options.seed), digest
    except ValueError as error:
        raise ValueError(f"--task {error}") from error


def _team() -> hosts.Hosts:
    """The processes of this job; a ValueError if they do not find each other."""
    try:
        return hosts.join()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def _refuse_results(out: Path, force: bool, *, resume: bool) -> None:
    """Refuses a folder with results, so that files of two runs never mix.

    To `resume`, the decisions of a run that was cut off before its first checkpoint are
    no results.

    Raises:
      ValueError: there are some, and nothing forces this run into their place.
    """
    there = [name for name in RESULTS if os.path.lexists(out / name)]
    if resume and there == [_resume.DECISIONS]:
        return
    if there and not force:
        raise ValueError(
            f"--out {out}: an earlier run has left {', '.join(there)} there. Name "
            "another folder with --out, or remove these results with --force"
        )


def _make_folder(out: Path, goes_on: bool) -> None:
    """The folder, without results unless the run goes on that has left them."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in () if goes_on else RESULTS:
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(
            f"--out {out}: cannot make this folder ({error.strerror}); name one that "
            "you may write to"
        ) from error
