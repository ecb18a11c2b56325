"""The application: each command is registered here, in one line.

What a command needs beyond typer and rich is imported when it runs, so that `--help`
stays quick.
"""

import typer

from relaxjax.cli import _bench, _check, _order, _plan, _run, _train

app = typer.Typer(
    name="relaxjax",
    help="Relaxed collectives for JAX: data-parallel training that sends less, later, "
    "to fewer peers, or in a better order.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

app.command("train", help=_train.help_text())(_train.train)
app.command("plan")(_plan.plan)
app.command("order")(_order.order)
app.command("check")(_check.check)
app.command(
    "run",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)(_run.run)
app.add_typer(_bench.bench, name="bench")


def main() -> None:
    """Runs the command line."""
    app(prog_name="relaxjax")
