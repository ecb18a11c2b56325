"""`relaxjax explain NAME`: what a relaxation does, sends and keeps.

Parsing and printing only; the work is done in `relaxjax.programs`.
"""

import json
from textwrap import fill
from typing import Annotated

import typer
from rich.console import Console

from relaxjax._core.foreign._ranges import EXPLAINED
from relaxjax.cli._errors import user_errors
from relaxjax.cli._known import DEFAULT_WORKERS, TaskName, relaxations, require_name


def explain(
    relaxation: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A relaxation, as in `relaxjax train --relaxation`.",
            autocompletion=relaxations,
        ),
    ],
    *,
    workers: Annotated[
        int,
        typer.Option(min=1, max=int(EXPLAINED.most), help="Number of workers."),
    ] = DEFAULT_WORKERS,
    task: Annotated[
        TaskName, typer.Option(help="The task whose model is counted.")
    ] = TaskName.DIGITS,
    periods: Annotated[
        str | None,
        typer.Option(metavar="SCHEDULE", help="As in `relaxjax train --periods`."),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="As in `relaxjax train --ranks`."),
    ] = None,
    codes: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="As in `relaxjax train --codes`."),
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="As in `relaxjax train --merge`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Say what a relaxation does, sends and keeps.

    Nothing is trained: the update is traced for the task's model, on its optimizer.
    """
    with user_errors():
        require_name(relaxation)
        from relaxjax import tasks  # JAX
        from relaxjax._core._relaxation import Training
        from relaxjax._names import parse
        from relaxjax.programs import explain as explained
        from relaxjax.workers import emulate

        choice = parse(relaxation)
        params, steps, peak = tasks.outline(task.value)
        parent = tasks.OPTIMIZERS[choice.row.parent]
        rate = tasks.schedule(parent.rate * peak, steps)
        training = Training(parent.make(rate), rate, steps, workers)
        texts = {"periods": periods, "ranks": ranks, "codes": codes, "merge": merge}
        tx = choice.build("data", training, **texts)
        found = explained(tx, params, emulate(workers), steps=steps)
    if as_json:
        typer.echo(json.dumps({"relaxation": relaxation, **found.as_dict()}))
        return
    width = Console().width
    for line in [f"{relaxation}: {choice.row.summary}", *str(found).splitlines()]:
        typer.echo(_wrapped(line, width))


def _wrapped(line: str, width: int) -> str:
    """Words stay whole."""
    return fill(
        line,
        width,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
