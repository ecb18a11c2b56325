"""`relaxjax train`: the main job, real data from the first step to the plot."""

from collections.abc import Iterable
from pathlib import Path
from textwrap import fill, indent
from typing import Annotated

import typer
from rich.markup import escape

from relaxjax._names import GRAMMAR, RELAXATIONS
from relaxjax.cli._errors import endings, user_errors
from relaxjax.cli._names import OrderName, TaskName, relaxations
from relaxjax.compression import COMPRESSORS, FEEDBACKS
from relaxjax.topology import TOPOLOGIES


def help_text() -> str:
    """The command's help, with a line for each relaxation of the table."""
    width = max(map(len, RELAXATIONS))
    rows = (f"  {row.name:{width}}  {row.summary}" for row in RELAXATIONS.values())
    return (
        "Train on real data, several workers against one on the same total batch.\n\n"
        "\b\nRelaxations:\n"
        + escape("\n".join(rows))
        + "\n\n\b\nA name is spelled\n  "
        + escape(GRAMMAR)
        + "\n\n\b\nCompressors:\n"
        + _listed(COMPRESSORS)
        + "\n\n\b\nError feedback:\n"
        + _listed(FEEDBACKS)
        + "\n\n\b\nTopologies, after @:\n"
        + _listed(TOPOLOGIES)
    )


def _listed(names: Iterable[str]) -> str:
    return indent(fill(", ".join(names), 70), "  ")


def train(
    relaxation: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="One of those above.", autocompletion=relaxations
        ),
    ] = "all_reduce",
    workers: Annotated[
        int | None,
        typer.Option(help="Default: 8; all devices under jax.distributed."),
    ] = None,
    task: Annotated[
        TaskName,
        typer.Option(help="Handwritten digits, or Python source text."),
    ] = TaskName.DIGITS,
    steps: Annotated[int | None, typer.Option(help="Default: the task's own.")] = None,
    seed: Annotated[
        int, typer.Option(help="Of the model's start and the batches.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for run.json and curves.png."),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Rows over all workers. Default: the task's own."),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak. Default: the task's own.")
    ] = None,
    bucket_mb: Annotated[
        float | None, typer.Option(help="Size of fused messages, in MiB.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="OPTION=NUMBER", help="Of the relaxation, as in rank=4."
        ),
    ] = None,
    order: Annotated[
        OrderName | None,
        typer.Option(help="Of transfers, from the task's own program."),
    ] = None,
    accumulate: Annotated[int, typer.Option(help="Send once per this many steps.")] = 1,
    skip_nonfinite: Annotated[
        bool, typer.Option("--skip-nonfinite", help="Skip steps with a NaN, together.")
    ] = False,
    check_every: Annotated[
        int | None,
        typer.Option(help="Steps after which all models must be equal, to the bit."),
    ] = None,
    lost_after: Annotated[
        float,
        typer.Option(help="Seconds without a sign after which a process is lost."),
    ] = 15.0,
    stuck_after: Annotated[
        float,
        typer.Option(help="Seconds without a step after which processes give up."),
    ] = 300.0,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(help="Steps from one checkpoint to the next, in --out."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the last checkpoint in --out."),
    ] = False,
    no_baseline: Annotated[
        bool, typer.Option("--no-baseline", help="Leave out the one-worker run.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="JSON alone on stdout: a list of runs."),
    ] = False,
) -> None:
    """Reads the options; `_job` and `_training` do the rest."""
    from relaxjax.cli import (  # flax, scikit-learn and matplotlib
        _job,
        _train_options,
        _training,
    )

    wishes = _train_options.TrainOptions(
        relaxation=relaxation,
        workers=workers,
        task=task.value,
        steps=steps,
        seed=seed,
        out=out,
        batch_size=batch_size,
        learning_rate=learning_rate,
        bucket_mb=bucket_mb,
        options=tuple(options or ()),
        order=order and order.value,
        accumulate=accumulate,
        skip_nonfinite=skip_nonfinite,
        check_every=check_every,
        checkpoint_every=checkpoint_every,
        resume=resume,
        baseline=not no_baseline,
        lost_after=lost_after,
        stuck_after=stuck_after,
        as_json=as_json,
    )
    with user_errors():
        job = _job.prepare(wishes)
    with endings():
        _training.run(job)
