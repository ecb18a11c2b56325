"""A command's options are the fields of one record."""

from dataclasses import MISSING, dataclass, fields
from inspect import signature
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from relaxjax.cli._app import COMMANDS, load
from relaxjax.cli.common._takes import argument, option, takes


@dataclass(frozen=True, kw_only=True)
class Options:
    """One of each kind."""

    rate: float = option("A rate.", default=...)
    script: str = argument("A script.", default=...)
    rest: list[str] | None = argument("The rest.")
    workers: int = option("Workers.", "-n", default=2, min=1)
    out: Path | None = option("A folder.")
    quick: bool = option("Quickly.", "--quick", default=False)


def run(line: str):
    taken = []

    @takes(Options)
    def command(options: Options) -> None:
        """What it does."""
        taken.append(options)

    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, line.split()), taken


def test_a_record_has_what_the_line_says_and_the_defaults():
    result, taken = run("--rate 0.5 go.py a b --out runs --quick")
    assert result.exit_code == 0, result.output
    (found,) = taken
    expected = Options(
        rate=0.5, script="go.py", rest=["a", "b"], out=Path("runs"), quick=True
    )
    assert found == expected
    assert found.workers == 2


def test_a_record_made_in_code_has_the_defaults_of_the_line():
    _, (typed,) = run("--rate 1 go.py")
    made = Options(rate=1.0, script="go.py")
    assert (made.workers, made.out, made.quick) == (2, None, False)
    assert (made.workers, made.out, made.quick) == (typed.workers, None, typed.quick)
    needed = [one.name for one in fields(Options) if one.default is MISSING]
    assert needed == ["rate", "script"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("go.py", "--rate"),
        ("--rate 1", "script"),
        ("--rate 1 go.py -n 0", "-n"),
        ("--rate x go.py", "--rate"),
    ],
)
def test_a_line_that_does_not_fit_is_refused(line, name):
    result, taken = run(line)
    assert result.exit_code == 2
    assert name in result.output.lower()
    assert taken == []


def test_the_help_has_each_option_with_its_words():
    shown = run("--help")[0].output
    for words in (
        "What it does.",
        "A script.",
        "A rate.",
        "Workers.",
        "[default: 2]",
        "Quickly.",
    ):
        assert words in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_a_record(name):
    """So that its options are listed once: parameters are the record's fields."""
    command = load(name).callback.__wrapped__
    (record,) = signature(command.__wrapped__, eval_str=True).parameters.values()
    shown = {one.name for one in load(name).params} - {"help"}
    assert shown == {one.name for one in fields(record.annotation)}
