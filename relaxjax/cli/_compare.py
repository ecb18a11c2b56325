"""`relaxjax compare`: many relaxations on one task, and one report."""

import math
import re
import shlex
import sys
from dataclasses import fields
from importlib.resources import files
from os.path import isdir
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from relaxjax import compare as comparing
from relaxjax import hosts
from relaxjax.cli.common._errors import user_errors
from relaxjax.cli.common._function import write_new
from relaxjax.cli.common._takes import takes
from relaxjax.cli.options._compare import CompareOptions

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@takes(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Compare relaxations on your own model and data, tuned alike.

    Every relaxation gets the same number of runs to find its learning rate, by
    validation data; the report shows test data, of other seeds. A study can be stopped
    at any time: the same command goes on.
    """
    if options.skeleton is not None:
        _write_skeleton(options.skeleton)
    elif options.what is None:
        raise typer.BadParameter("name a task file or a study, or pass --skeleton FILE")
    elif isdir(what := options.what):
        hosts.keeps(nothing=f"the study is in {what}: the same command reports it")
        with user_errors():
            _require_nothing_else(options)
            _end(comparing.Results(what))
    else:
        with user_errors():
            study = _study(what, options)
            shard, budget = _shard(options.shard), _seconds(options.budget)
        _run(study, options.out, {"shard": shard, "budget": budget})


def _require_nothing_else(options: CompareOptions) -> None:
    """A study that is there is reported as it was asked for."""
    for field in fields(CompareOptions):
        if field.name != "what" and getattr(options, field.name) != field.default:
            raise ValueError(
                f"{options.what} is a study that is there, and is reported as it was "
                f"asked for: leave --{field.name.replace('_', '-')} out, or name its "
                "task, and the folder as --out"
            )


def _study(what: str, options: CompareOptions) -> "comparing.Study":
    rates, grid = _tuned(options.tune or [])
    compute = options.compute_ms
    return comparing.Study(
        what,
        options.relaxation or ["all_reduce"],
        seeds=options.seeds,
        tune=rates,
        grid=grid,
        workers=options.workers,
        steps=options.steps,
        batch_size=options.batch_size,
        networks=options.network or comparing.Study.NETWORKS,
        compute=None if compute is None else compute / 1e3,
        target=options.target,
        seeds_at_once=options.seeds_at_once,
    )


def _run(study: "comparing.Study", out: Path, how: dict[str, Any]) -> None:
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    hosts.keeps(lambda: _kept(out), nothing="no run was finished")
    with bar, user_errors():
        line = bar.add_task("", total=None)

        def show(done: int, of: int, run: str) -> None:
            bar.update(line, completed=done, total=of, description=run)
            if not console.is_terminal:
                console.print(f"{done + 1} of {of}: {run}", soft_wrap=True)

        command = shlex.join(["relaxjax", *sys.argv[1:]])
        results = study.run(out, progress=show, command=command, **how)
    _end(results)


def _end(results: "comparing.Results") -> None:
    """Writes the report, and prints its table, its verdicts and where it is."""
    results.write()
    typer.echo(results.table(), nl=False)
    for sentence in results.conclusion():
        typer.echo(sentence)
    typer.echo(f"Report: {results.folder / 'report.html'}")


def _kept(out: Path) -> str:
    """The finished runs of a study, in words; "" before the first."""
    runs = sum(path.read_bytes().count(b"\n") for path in out.glob("results*.jsonl"))
    return (
        f"{runs} finished runs are in {out}: the same command goes on" if runs else ""
    )


def _write_skeleton(path: Path) -> None:
    text = files("relaxjax.compare.skeletons").joinpath("task.py").read_text()
    with user_errors():
        write_new(path, text)
    command = shlex.join(["relaxjax", "compare", str(path)])
    typer.echo(f"{path} is written; {command} --relaxation all_reduce ...")


def _tuned(texts: list[str]) -> tuple[int, dict[str, list[float]]]:
    rates, grid = 3, {}
    for text in texts:
        option, equals, values = text.partition("=")
        try:
            if equals:
                grid[option] = [float(x) for x in values.split(",")]
            else:
                rates = int(text)
        except ValueError as error:
            raise ValueError(
                f"--tune {text} must be a number of learning rates, or OPTION=A,B,C as "
                "in outer_learning_rate=0.4,0.7,1"
            ) from error
    return rates, grid


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    part, parts = map(int, match.groups()) if match else (0, 0)
    if not 1 <= part <= parts:
        raise ValueError(f"--shard {text} must be a part of all, as in 3/8")
    return part, parts


def _seconds(text: str | None) -> float:
    if text is None:
        return math.inf
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)([smh])", text)
    if not match:
        raise ValueError(f"--budget {text} must be a time, as in 90s, 30m or 2h")
    return float(match[1]) * _UNITS[match[2]]
