"""A job trains, shows its progress, and writes its files."""

from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path

import jax
from rich.console import Console

from relaxjax import hosts
from relaxjax.checkpoint import ON_ANY_MESH, plan_of
from relaxjax.cli.common import _devices
from relaxjax.cli.printed import _report
from relaxjax.cli.training import _order_report, _resume
from relaxjax.cli.training._job import CHECKPOINTS, Run, TrainJob
from relaxjax.cli.training._loop import Bar, fit
from relaxjax.compare import task_digest
from relaxjax.programs import wire_bytes


def run(job: TrainJob) -> list[_report.Record]:
    """Trains, shows its progress, and writes run.json and curves.png.

    With several processes, only the first one prints and writes.

    Returns:
      A record for each run; the one that was asked for comes first.
    """
    first = jax.process_index() == 0
    console = Console(quiet=not first, stderr=job.options.as_json)
    with hosts.Watch(job.team, **job.patience) as watch:
        records = [
            _train(job, one, console, _stops(watch, i * job.steps))
            for i, one in enumerate(job.runs)
        ]
    if first:
        shared = _devices.share_cores(job.runs[0].mesh)
        _write(records, job.out, shared=shared)
        where = _devices.describe(job.runs[0].mesh)
        caption = f"Workers are {where}."
        width = console.width
        console.print(_report.table(records, caption=caption, width=width))
        console.print(f"run.json and curves.png are in {job.out}", soft_wrap=True)
        if job.runs[0].conducted:
            told = job.out / _resume.DECISIONS
            text = f"{told} is what was decided: recorded:PATH repeats it"
            console.print(text, soft_wrap=True)
    if job.order:
        asked = job.runs[0]
        rest = job.batch_size, job.out, console
        _order_report.report(job.order, job.task, asked.tx, asked.mesh, *rest)
    if first and job.options.as_json:
        print(_report.as_json(records))
    return records


def _write(records: list[_report.Record], out: Path, *, shared: bool) -> None:
    """Writes run.json, one_worker.json and curves.png."""
    for record, name in zip(records, ("run.json", "one_worker.json"), strict=False):
        with hosts.writing(out / name):
            _report.write(record, out / name)
    with hosts.writing(out / "curves.png"):
        _report.plot(records, out / "curves.png", shared=shared)


def _stops(watch: hosts.Watch, before: int) -> Callable[[int], bool]:
    """Whether to stop before a step of a run; earlier runs had `before` steps."""
    return lambda step: watch.stops_before(before + step)


def _train(
    job: TrainJob, run: Run, console: Console, stops_before: Callable[[int], bool]
) -> _report.Record:
    task = job.task
    noun = "worker" if run.mesh.size == 1 else "workers"
    title = f"{run.name}, {run.mesh.size} {noun}"
    keeper = _keeper(job, run)
    if keeper is None and run is job.runs[0]:
        hosts.keeps(nothing="nothing was written; --checkpoint-every saves a run")
    with (
        closing(keeper) if keeper else nullcontext(),
        Bar(console, title, steps=job.steps, metric_name=task.metric_name) as bar,
    ):
        fitted = fit(job, run, bar, stops_before, keeper)
    curve, steps_per_second, spread, decided = fitted
    period = run.period if decided is None else job.steps
    tx = run.tx if decided is None else decided
    sent = wire_bytes(tx, task.params, run.mesh, steps=period)
    _, loss, metric = curve[-1]
    return _report.Record(
        relaxation=run.name,
        task=task.name,
        workers=run.mesh.size,
        steps=job.steps,
        seed=job.options.seed,
        loss=loss,
        metric_name=task.metric_name,
        metric=metric,
        bytes_per_step=sent / period,
        steps_per_second=steps_per_second,
        spread=spread,
        data=task.data,
        curve=curve,
    )


def _keeper(job: TrainJob, run: Run) -> _resume.Keeper | None:
    """Saves the run that was asked for; what it is compared with starts afresh."""
    resume, every = job.options.resume, job.options.checkpoint_every
    if not (resume or every is not None) or run is not job.runs[0]:
        return None
    file = job.task_sha256
    plan = {
        "the relaxation": run.name,
        "the task": job.task.name,
        "the data (sha256)": job.task.data.sha256,
        "--seed": str(job.options.seed),
        "--steps": str(job.steps),
        "--batch-size": str(job.batch_size),
        **({"the task's file (sha256)": file} if file else {}),
        ON_ANY_MESH: task_digest(job.task, job.batch_size),
        **plan_of(run.tx, job.task.params, run.mesh),
    }
    return _resume.Keeper(job.out / CHECKPOINTS, run.mesh, every, resume, plan)
