"""What ends a command early: one message instead of a traceback, and exit codes."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from relaxjax import faults, hosts

MISTAKE, DIFFERENT, LOST = 2, 3, 70
EXIT_CODES = {
    0: "done, or stopped when asked to",
    1: "a law that check refutes, or a bug with its traceback",
    MISTAKE: "a mistake on the command line",
    DIFFERENT: "workers' models differ that must not",
    LOST: "another process was lost or stuck",
    130: "interrupted",
}


class Stopped(Exception):
    """Training was asked to stop before a step; the message says which."""


@contextmanager
def user_errors() -> Iterator[None]:
    """Reports a ValueError as a message. Put around checks, not around the work itself.

    Raises:
      typer.Exit: with code 2, where the body raised ValueError.
    """
    try:
        yield
    except ValueError as error:
        typer.echo(f"relaxjax: {error}", err=True)
        raise typer.Exit(MISTAKE) from error


@contextmanager
def endings() -> Iterator[None]:
    """Reports what ends training early. Put around the work itself.

    Raises:
      typer.Exit: with code 3, where workers no longer hold the same model; with 70,
        where another process was lost; with 0, where all were asked to stop.
    """
    codes = {faults.ReplicaError: DIFFERENT, hosts.LostProcess: LOST, Stopped: 0}
    try:
        yield
    except tuple(codes) as error:
        typer.echo(f"relaxjax: {error}", err=True)
        raise typer.Exit(codes[type(error)]) from error
