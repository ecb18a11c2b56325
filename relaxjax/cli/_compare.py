"""`relaxjax compare`: many relaxations on one task, and one report."""

import math
import re
import shlex
import sys
from importlib.resources import files
from os.path import isdir
from pathlib import Path
from typing import Annotated, Any

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
from relaxjax.cli._errors import user_errors
from relaxjax.cli._function import write_new

_OUT = Path("runs/study")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def compare(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="A task file, FILE.py or FILE.py:NAME; digits or chars; or the folder "
            "of a study, whose report is written again.",
        ),
    ] = None,
    relaxation: Annotated[
        list[str] | None,
        typer.Option(
            help="Relaxation, with options after blanks, as in 'diloco sync_every=16'; "
            "repeat it. The first is the baseline."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each to report.")] = 3,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K | OPTION=A,B,C",
            help="Learning rates to try, a factor of 3 apart (default: 3; 1 tunes "
            "nothing); or values of an option. May be repeated.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Emulated workers.")] = 8,
    network: Annotated[
        list[str] | None,
        typer.Option(
            help="Bandwidth and latency of a worker's link, as in 1gbit,10ms; may be "
            "repeated."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of a run.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows of a step, over all workers.")
    ] = None,
    compute_ms: Annotated[
        float | None,
        typer.Option(
            help="Time of a step without communication in ms; measured here by default."
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Validation metric to reach; default: the baseline's, -2 %."),
    ] = None,
    seeds_at_once: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Seeds that are trained in one program; default: on a GPU as many as "
            "fit, else 1.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Begin no run after this time, as in 30m, and report."),
    ] = None,
    shard: Annotated[
        str, typer.Option(help="Do the relaxations of this part only, as in 3/8.")
    ] = "1/1",
    out: Annotated[Path, typer.Option(help="Folder of the study.")] = _OUT,
    skeleton: Annotated[
        Path | None, typer.Option(help="Write a task file to begin with, and exit.")
    ] = None,
) -> None:
    """Compare relaxations on your own model and data, tuned alike.

    Every relaxation gets the same number of runs to find its learning rate, by
    validation data; the report shows test data, of other seeds. A study can be stopped
    at any time: the same command goes on.
    """
    console = Console(stderr=True)
    if skeleton is not None:
        _write_skeleton(skeleton)
        return
    if what is None:
        raise typer.BadParameter("name a task file or a study, or pass --skeleton FILE")
    if isdir(what):
        hosts.keeps(nothing=f"the study is in {what}: the same command reports it")
        with user_errors():
            _end(comparing.Results(what))
        return
    with user_errors():
        rates, grid = _tuned(tune or [])
        study = comparing.Study(
            what,
            relaxation or ["all_reduce"],
            seeds=seeds,
            tune=rates,
            grid=grid,
            workers=workers,
            steps=steps,
            batch_size=batch_size,
            networks=network or comparing.Study.NETWORKS,
            compute=None if compute_ms is None else compute_ms / 1e3,
            target=target,
            seeds_at_once=seeds_at_once,
        )
        how: dict[str, Any] = {"shard": _shard(shard), "budget": _seconds(budget)}
    _run(study, out, console, how)


def _run(
    study: "comparing.Study", out: Path, console: Console, how: dict[str, Any]
) -> None:
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
    """Writes the report, and says what it says and where it is."""
    results.write()
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
    typer.echo(
        f"{path} is written; relaxjax compare {path} --relaxation all_reduce ..."
    )


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
    match = re.fullmatch(r"([\d.]+)([smh])", text)
    if not match:
        raise ValueError(f"--budget {text} must be a time, as in 90s, 30m or 2h")
    return float(match[1]) * _UNITS[match[2]]
