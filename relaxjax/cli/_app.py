"""The application: a table of commands, each imported when it is chosen.

So `relaxjax --help` imports neither JAX nor any algorithm.
"""

import os
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from relaxjax.cli.common._errors import EXIT_CODES, quiet_pipes, user_errors

COMMANDS = {
    "train": "Train on real data: many workers and one, on the same batches.",
    "plan": "Predict step time, bytes and memory of each relaxation.",
    "compare": "Compare relaxations on your own model and data, tuned alike.",
    "explain": "Say what a relaxation does, sends and keeps.",
    "order": "Order the transfers of a function's params; bound the makespan.",
    "check": "Check your own compressor, topology or relaxation.",
    "run": "Run a script in several processes that find each other.",
    "islands": "Run a script in several islands, and start again those that end.",
}
"""The first line of each command's help; NAME is the function NAME of `cli/_NAME.py`.

A module may define `SETTINGS`, further arguments of `typer.Typer.command`.
"""
_HELP = """Relaxed collectives for JAX: data-parallel training that sends less, later,
to fewer peers, or in a better order.

\b
To get started:
  relaxjax train --relaxation all_reduce --workers 8 --task digits
  relaxjax train --relaxation all_reduce+quantize8@two_shot
  relaxjax train --help     lists all relaxations
  relaxjax plan --help      finds out which of them pays on your network
"""
_MOVED = "bench has moved: run `python -m benchmarks NAME` in a clone of the repository"


class LazyCommands(TyperGroup):
    """Imports a command's module when it is run, completed or asked for its help."""

    def resolve_command(
        self, ctx: Any, args: list[str]
    ) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, and the arguments that remain."""
        if args[0] == "bench" and not ctx.resilient_parsing:
            with user_errors():
                raise ValueError(_MOVED)
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and load(name), rest


def load(name: str) -> Any:
    """The command itself, where the table has only its name and a line of help."""
    module = import_module(f"relaxjax.cli._{name}")
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, **getattr(module, "SETTINGS", {}))(getattr(module, name))
    return get_command(single)


app = typer.Typer(
    name="relaxjax",
    cls=LazyCommands,
    epilog=f"Exit codes: {'; '.join(f'{k} {v}' for k, v in EXIT_CODES.items())}.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # whose tables cut the names of options
)
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"relaxjax {version('relaxjax')}, jax {version('jax')}")
        raise typer.Exit


@app.callback(help=_HELP)
def begin(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Show the versions of relaxjax and JAX and exit.",
        ),
    ] = False,
) -> None:
    """Options that come before the name of a command."""


def main() -> None:
    """Runs the command line."""
    if os.environ.get("COLUMNS") == "0":  # a terminal of no known width, as Emacs says
        del os.environ["COLUMNS"]
    with quiet_pipes():
        app(prog_name="relaxjax")
