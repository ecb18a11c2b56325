"""`relaxjax explain NAME`: what a relaxation does, sends and keeps.

Parsing and printing only; the work is done in `relaxjax.programs`.
"""

import json
from dataclasses import dataclass
from textwrap import fill

import typer
from rich.console import Console

from relaxjax._core.foreign._ranges import EXPLAINED
from relaxjax.cli.common._errors import user_errors
from relaxjax.cli.common._known import (
    DEFAULT_WORKERS,
    TaskName,
    relaxations,
    require_name,
)
from relaxjax.cli.common._takes import argument, option, takes


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """The options of `relaxjax explain`."""

    relaxation: str = argument(
        "A relaxation, as in `relaxjax train --relaxation`.",
        default=...,
        metavar="NAME",
        autocompletion=relaxations,
    )
    workers: int = option(
        "Number of workers.", default=DEFAULT_WORKERS, min=1, max=int(EXPLAINED.most)
    )
    task: TaskName = option("The task whose model is counted.", default=TaskName.DIGITS)
    periods: str | None = option(
        "As in `relaxjax train --periods`.", metavar="SCHEDULE"
    )
    ranks: str | None = option("As in `relaxjax train --ranks`.", metavar="TABLE")
    codes: str | None = option("As in `relaxjax train --codes`.", metavar="TABLE")
    merge: str | None = option("As in `relaxjax train --merge`.", metavar="RULE")
    as_json: bool = option("Print only JSON.", "--json", default=False)


@takes(ExplainOptions)
def explain(options: ExplainOptions) -> None:
    """Say what a relaxation does, sends and keeps.

    Nothing is trained: the update is traced for the task's model, on its optimizer.
    """
    with user_errors():
        require_name(options.relaxation)
        from relaxjax import tasks  # JAX
        from relaxjax._core._relaxation import Training
        from relaxjax._names import parse
        from relaxjax.programs import explain as explained
        from relaxjax.workers import emulate

        choice = parse(options.relaxation)
        params, steps, peak = tasks.outline(options.task.value)
        parent = tasks.OPTIMIZERS[choice.row.parent]
        rate = tasks.schedule(parent.rate * peak, steps)
        training = Training(parent.make(rate), rate, steps, options.workers)
        texts = {k: getattr(options, k) for k in ("periods", "ranks", "codes", "merge")}
        tx = choice.build("data", training, **texts)
        found = explained(tx, params, emulate(options.workers), steps=steps)
    if options.as_json:
        typer.echo(json.dumps({"relaxation": options.relaxation, **found.as_dict()}))
        return
    width = Console().width
    for line in [
        f"{options.relaxation}: {choice.row.summary}",
        *str(found).splitlines(),
    ]:
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
