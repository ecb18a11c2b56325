"""A job trains, shows how it goes, and leaves its files behind."""

from collections.abc import Callable

import jax
from rich.console import Console

from relaxjax import hosts
from relaxjax.checkpoint import plan_of
from relaxjax.cli import _devices, _report
from relaxjax.cli import _order_report as _ordered
from relaxjax.cli import _resume as _kept
from relaxjax.cli._job import CHECKPOINTS, Run, TrainJob
from relaxjax.cli._loop import fit
from relaxjax.cli._progress import Bar
from relaxjax.programs import wire_bytes


def run(job: TrainJob) -> list[_report.Record]:
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


def _stops(watch: hosts.Watch, before: int) -> Callable[[int], bool]:
    """Whether to stop before a step of a run; the runs before it had so many."""
    return lambda step: watch.stops_before(before + step)


def _train(
    job: TrainJob, run: Run, console: Console, stops_before: Callable[[int], bool]
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


def _keeper(job: TrainJob, run: Run) -> _kept.Keeper | None:
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
    folder = job.out / CHECKPOINTS
    return _kept.Keeper(folder, run.mesh, job.checkpoint_every, job.resume, plan)
