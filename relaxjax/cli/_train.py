"""`relaxjax train`: the main job, real data from the first step to the plot."""

from pathlib import Path
from typing import Annotated, Any

import typer

from relaxjax.cli._app import COMMANDS
from relaxjax.cli._errors import endings, user_errors
from relaxjax.cli._known import OrderName, lists, relaxations, require_name, tasks

SETTINGS = {"help": COMMANDS["train"] + lists()}


def train(
    relaxation: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What to train with: a name from the lists above.",
            autocompletion=relaxations,
        ),
    ] = "all_reduce",
    workers: Annotated[
        int | None,
        typer.Option(help="Workers. Default: 8, or all devices of several processes."),
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            metavar="digits | chars | FILE.py[:NAME]",
            help="What to learn: handwritten digits, Python source text, or the task "
            "that a function of your own file returns.",
            autocompletion=tasks,
        ),
    ] = "digits",
    steps: Annotated[
        int | None, typer.Option(help="Number of steps. Default: the task's own.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the initial model and the batches.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for run.json and curves.png.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows over all workers. Default: the task's own.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak rate. Default: the task's own.")
    ] = None,
    bucket_mb: Annotated[
        float | None, typer.Option(help="Size of the buckets that are sent, in MiB.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTION=NUMBER",
            help="An option of the relaxation, as in rank=4; may be repeated.",
        ),
    ] = None,
    periods: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEDULE",
            help="When workers meet: a number of steps, a schedule, as in "
            "qsr:peaks=2 or table:0=4,1000=16, or a controller, as in "
            "ada_comm:start=16.",
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Ranks that change, as in table:0=4,1000=1, or a controller, as in "
            "accordion:low=1,high=4,every=200, or l_greco:rank=2,every=200.",
        ),
    ] = None,
    codes: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Bits that change, as in table:0=8,1000=4, or a controller, as in "
            "accordion:low=4,high=8,every=200; with error feedback.",
        ),
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="How contributions become one: mean, rda, or a rule such as clipped "
            "or trimmed:b=1.",
        ),
    ] = None,
    order: Annotated[
        OrderName | None, typer.Option(help="Order of the transfers of parameters.")
    ] = None,
    accumulate: Annotated[
        int, typer.Option(help="Steps whose gradients are sent together.")
    ] = 1,
    skip_nonfinite: Annotated[
        bool,
        typer.Option("--skip-nonfinite", help="All skip a step where one has a NaN."),
    ] = False,
    check_every: Annotated[
        int | None, typer.Option(help="Steps between checks that all models are equal.")
    ] = None,
    lost_after: Annotated[
        float, typer.Option(help="Seconds of silence until a process counts as lost.")
    ] = 15.0,
    stuck_after: Annotated[
        float, typer.Option(help="Seconds without a step until processes give up.")
    ] = 300.0,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps from one checkpoint in --out to the next.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Remove an earlier run's results from --out."),
    ] = False,
    no_baseline: Annotated[
        bool, typer.Option("--no-baseline", help="Skip the one-worker run.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only JSON: a list of runs.")
    ] = False,
) -> None:
    """Reads the options; `_prepare` and `_training` do the rest."""
    asked: dict[str, Any] = {**locals()}
    baseline = not asked.pop("no_baseline")
    asked |= {"settings": tuple(settings or ()), "baseline": baseline}
    with user_errors():
        require_name(relaxation)
    from relaxjax.cli import (  # JAX, flax, scikit-learn and matplotlib
        _job,
        _prepare,
        _training,
    )

    with user_errors():
        job = _prepare.prepare(_job.TrainOptions(**asked))
    with endings():
        _training.run(job)
