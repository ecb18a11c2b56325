"""`relaxjax check FILE.py`: laws, bytes, codec time and a place on the loss-bytes plot.

Parsing and printing only; the work is done in `relaxjax.check`.
"""

import json
import shlex
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from os.path import isfile
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relaxjax import check as checks
from relaxjax import hosts
from relaxjax._core.foreign._folders import local_path, write_whole
from relaxjax._core.foreign._ranges import DRAWS, STEPS
from relaxjax.cli.common._errors import user_errors
from relaxjax.cli.common._function import import_file, write_new
from relaxjax.cli.common._takes import argument, option, takes
from relaxjax.cli.printed._tables import aligned

_WORKERS = 4  # devices that programs are compiled for


class Skeleton(StrEnum):
    """Files to start from."""

    compressor = "compressor"
    topology = "topology"
    relaxation = "relaxation"


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The options of `relaxjax check`."""

    file: Path | None = argument("The file to check.", metavar="FILE.py")
    skeleton: Skeleton | None = option(
        "Write a working example to start from, here or to FILE.py."
    )
    out: Path = option(
        "Folder for check.json, check.png and check.html.", default=Path("runs/check")
    )
    steps: int = option(
        "Training steps on digits; 0 skips training.",
        default=300,
        min=0,
        max=int(STEPS.most),
    )
    draws: int = option(
        "Draws of a random compressor, per input.",
        default=1000,
        min=100,
        max=int(DRAWS.most),
    )
    codec_mb: float = option(
        "Size in MiB of the array that is timed.", default=16.0, min=0.01, max=1024
    )
    as_json: bool = option("Print only JSON.", "--json", default=False)


@takes(CheckOptions)
def check(options: CheckOptions) -> None:
    """Check your own compressor, topology or relaxation.

    It is held to the laws it declares, its bytes are counted in the program, its codec
    is timed, and it is trained beside others.

    The file's functions say what they make by their return annotation: a Compressor, a
    Topology or an optax.GradientTransformation (docs: "Extending").

    Exit code 0: all laws hold; 1: one is refuted, with its counterexample; 2: the file
    cannot be checked.
    """
    file = options.file
    if options.skeleton is not None:
        _write_skeleton(options.skeleton, file)
        return
    if file is None:
        raise typer.BadParameter("name a file to check, or pass --skeleton")
    if not isfile(file):
        raise typer.BadParameter(f"no such file: {file}")
    with user_errors():
        out = local_path("check", "out", options.out)
    report = _report(file, options)
    with user_errors():
        _save(report, out)
    if options.as_json:
        typer.echo(json.dumps(report))
    else:
        _print(report, out)
    if not report["holds"]:
        raise typer.Exit(1)


def _report(file: Path, options: CheckOptions) -> dict[str, Any]:
    from relaxjax.cli.common._devices import set_up  # JAX

    mesh = set_up(_WORKERS)
    module = import_file(file)
    with user_errors():
        subjects = checks.subjects_of(module)
    effort = checks.Effort(
        steps=options.steps, draws=options.draws, codec_mb=options.codec_mb
    )
    if options.as_json:
        return checks.report_of(file.name, subjects, mesh, effort)
    with Console(stderr=True).status("") as status:
        return checks.report_of(
            file.name, subjects, mesh, effort, lambda text: status.update(Text(text))
        )


def _write_skeleton(skeleton: Skeleton, file: Path | None) -> None:
    text = files("relaxjax.check.skeletons").joinpath(f"{skeleton}.py").read_text()
    path = file or Path(f"my_{skeleton}.py")
    with user_errors():
        write_new(path, text)
    typer.echo(f"wrote {path}; next: {shlex.join(['relaxjax', 'check', str(path)])}")


def _save(report: dict[str, Any], out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        with hosts.writing(out / "check.json"):
            write_whole(out / "check.json", json.dumps(report, indent=1) + "\n")
        with hosts.writing(out / "check.png"):
            checks.plot(report, out / "check.png")
        html = checks.page(report, (out / "check.png").read_bytes())
        with hosts.writing(out / "check.html"):
            write_whole(out / "check.html", html)
    except OSError as error:
        raise ValueError(
            f"--out {out}: cannot write there ({error.strerror}); name a folder that "
            "you may write to"
        ) from error


def _print(report: dict[str, Any], out: Path) -> None:
    console = Console()
    for subject in report["subjects"]:
        console.print(_laws_table(subject))
        if subject["codec"]:
            console.print(checks.codec_line(subject["codec"]), markup=False)
    if report["quality"]:
        console.print(_quality_table(report))
    verdict = "all laws hold" if report["holds"] else "some law is refuted"
    console.print(f"{report['file']}: {verdict}; {out / 'check.html'}", markup=False)


def _laws_table(subject: dict[str, Any]) -> Table:
    table = Table(title=Text(f"{subject['name']}, a {subject['kind']}"))
    for column in ("law", "", "found"):
        table.add_column(column, overflow="fold")
    styles = {True: "green", False: "bold red", None: "dim"}
    for law in subject["laws"]:
        case = law["counterexample"]
        found = law["found"] + (f"\n{case['text']}" if case else "")
        mark = Text(checks.MARKS[law["holds"]], styles[law["holds"]])
        table.add_row(Text(law["law"]), mark, Text(found))
    return table


def _quality_table(report: dict[str, Any]) -> Table:
    conditions = report["conditions"]
    title = f"{conditions['steps']} steps of {conditions['task']}, 8 workers"
    table = Table(title=title)
    table.add_column("run", no_wrap=True)
    for column in ("bytes per step", "loss", conditions["metric"]):
        table.add_column(column, justify="right", overflow="fold")
    columns = zip(*checks.quality_rows(report), strict=True)
    for row in zip(*(aligned(x, digits=4) for x in columns), strict=True):
        table.add_row(*map(Text, row))
    return table
