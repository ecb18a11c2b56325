"""The application: each command is registered here, in one line.

What a command needs beyond typer and rich is imported when it runs, so that `--help`
stays quick.
"""

from importlib.metadata import version
from typing import Annotated

import typer
from rich.markup import escape

from relaxjax.cli import _check, _order, _plan, _run, _train
from relaxjax.cli._errors import EXIT_CODES

_HELP = """Relaxed collectives for JAX: data-parallel training that sends less, later,
to fewer peers, or in a better order.

\b
To begin with:
  relaxjax train --relaxation all_reduce --workers 8 --task digits
  relaxjax train --relaxation all_reduce+quantize8@two_shot
  relaxjax train --help     names of all relaxations
  relaxjax plan --help      which of them pays on a network
"""

app = typer.Typer(
    name="relaxjax",
    epilog="Exit codes: "
    + escape("; ".join(f"{code} {what}" for code, what in EXIT_CODES.items()))
    + ".",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"relaxjax {version('relaxjax')}, jax {version('jax')}")
        raise typer.Exit


@app.callback(help=_HELP)
def begin(
    asked: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Print it, and that of JAX.",
        ),
    ] = False,
) -> None:
    """Options of the whole."""


app.command("train", help=_train.help_text())(_train.train)
app.command("plan")(_plan.plan)
app.command("order")(_order.order)
app.command("check")(_check.check)
app.command(
    "run",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)(_run.run)


def main() -> None:
    """Runs the command line."""
    app(prog_name="relaxjax")
