"""`relaxjax bench published`, `evidence`, `regret`, `planned`: what a plan is worth."""

from pathlib import Path
from typing import Annotated, Any

import typer

from relaxjax.cli._devices import emulate_devices
from relaxjax.cli._errors import user_errors
from relaxjax.cli._names import TaskName

Result = dict[str, Any]
Out = Annotated[Path, typer.Option(help="Folder for the JSON.")]
Workers = Annotated[int, typer.Option(min=1, help="Devices, emulated on CPU.")]
RUNS = Path("runs/bench")


def published(out: Out = RUNS) -> Result:
    """The planner's times against published figures of BAGUA, Horovod and BytePS."""
    from benchmarks.planning import published as _published

    return _published.published(out=str(out))


def evidence(
    task: Annotated[list[TaskName] | None, typer.Option(help="Default: both.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="As a plan labels it, without algorithm; default: all."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Of each.")] = 1,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Of each run; default: the task's.")
    ] = None,
    out: Out = RUNS,
) -> Result:
    """How well models train by what a plan ranks; adds to evidence.json."""
    from benchmarks.training import evidence as _evidence

    with user_errors():
        _evidence.entries(method)
    return _evidence.evidence(
        tasks=tuple(task or ("digits", "chars")),
        labels=method,
        seeds=seeds,
        steps=steps,
        out=str(out),
    )


def regret(
    folder: Annotated[
        list[Path], typer.Argument(help="Of bench network --part steps, one a model.")
    ],
    without: Annotated[
        list[str] | None,
        typer.Option(help="Beginning of labels that may not be chosen."),
    ] = None,
    out: Out = RUNS,
) -> Result:
    """The planner's choice between real hosts, over the best that was measured."""
    from benchmarks.planning import regret as _regret

    with user_errors():
        return _regret.regret(folder, without=without or (), out=str(out))


def planned(
    workers: Workers = 8,
    task: Annotated[TaskName, typer.Option(help="What is trained.")] = TaskName.DIGITS,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in all.")] = 1024,
    quality: Annotated[
        str, typer.Option(help="Worst class that may be chosen.")
    ] = "equal",
    top: Annotated[int, typer.Option(min=1, help="How many are run.")] = 5,
    out: Out = RUNS,
) -> Result:
    """The planner on the devices at hand: its choice, and trial runs of the best."""
    from benchmarks.planning import planned as _planned

    emulate_devices(workers)
    with user_errors():
        return _planned.planned(
            task=task.value,
            workers=workers,
            batch_size=batch_size,
            quality=quality,
            top=top,
            out=str(out),
        )
