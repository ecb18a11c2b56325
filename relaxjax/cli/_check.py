"""`relaxjax check FILE.py`: laws, bytes, codec time and a place on the loss-bytes plot.

Parsing and printing only; the work is done in `relaxjax.check`.
"""

import json
from enum import StrEnum
from importlib.resources import files
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relaxjax import check as checks
from relaxjax import hosts
from relaxjax._core.foreign._folders import local_path
from relaxjax._core.foreign._ranges import DRAWS, STEPS
from relaxjax.cli._errors import user_errors
from relaxjax.cli._function import import_file, write_new
from relaxjax.cli.printed._tables import aligned

_WORKERS = 4  # devices that programs are compiled for


class Skeleton(StrEnum):
    """Files to start from."""

    compressor = "compressor"
    topology = "topology"
    relaxation = "relaxation"


def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.py", help="The file to check.")
    ] = None,
    *,
    skeleton: Annotated[
        Skeleton | None,
        typer.Option(help="Write a working example to start from, here or to FILE.py."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for check.json, check.png and check.html.")
    ] = Path("runs/check"),
    steps: Annotated[
        int,
        typer.Option(
            min=0,
            max=int(STEPS.most),
            help="Training steps on digits; 0 skips training.",
        ),
    ] = 300,
    draws: Annotated[
        int,
        typer.Option(
            min=100,
            max=int(DRAWS.most),
            help="Draws of a random compressor, per input.",
        ),
    ] = 1000,
    codec_mb: Annotated[
        float,
        typer.Option(
            min=0.01, max=1024, help="Size in MiB of the array that is timed."
        ),
    ] = 16.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Check your own compressor, topology or relaxation.

    It is held to the laws it declares, its bytes are counted in the program, its codec
    is timed, and it is trained beside others.

    The file's functions say what they make by their return annotation: a Compressor, a
    Topology or an optax.GradientTransformation (docs: "Extending").

    Exit code 0: all laws hold; 1: one is refuted, with its counterexample; 2: the file
    cannot be checked.
    """
    if skeleton is not None:
        _write_skeleton(skeleton, file)
        return
    if file is None:
        raise typer.BadParameter("name a file to check, or pass --skeleton")
    if not isfile(file):
        raise typer.BadParameter(f"no such file: {file}")
    with user_errors():
        out = local_path("check", "out", out)
    report = _report(file, steps, draws, codec_mb, quiet=as_json)
    with user_errors():
        _save(report, out)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print(report, out)
    if not report["holds"]:
        raise typer.Exit(1)


def _report(
    file: Path, steps: int, draws: int, codec_mb: float, *, quiet: bool
) -> dict[str, Any]:
    from relaxjax.cli._devices import set_up  # JAX

    mesh = set_up(_WORKERS)
    module = import_file(file)
    with user_errors():
        subjects = checks.subjects_of(module)
    effort = checks.Effort(steps=steps, draws=draws, codec_mb=codec_mb)
    if quiet:
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
    typer.echo(f"wrote {path}; next: relaxjax check {path}")


def _save(report: dict[str, Any], out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        with hosts.writing(out / "check.json"):
            (out / "check.json").write_text(json.dumps(report, indent=1) + "\n")
        with hosts.writing(out / "check.png"):
            checks.plot(report, out / "check.png")
        html = checks.page(report, (out / "check.png").read_bytes())
        with hosts.writing(out / "check.html"):
            (out / "check.html").write_text(html)
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
