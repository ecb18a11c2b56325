"""What ends a command early: one message instead of a traceback, and exit codes."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from relaxjax import faults, hosts

MISTAKE, DIFFERENT, LOST, INTERRUPTED = 2, 3, 70, 130
EXIT_CODES = {
    0: "done, or stopped by SIGTERM",
    1: "a law that check refutes, or a bug with its traceback",
    MISTAKE: "a mistake on the command line",
    DIFFERENT: "workers' models differ that must not",
    LOST: "another process was lost or stuck",
    INTERRUPTED: "interrupted by Ctrl-C, at once or before the next step",
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
        where another process was lost; where all were asked to stop, with 130 after a
        Ctrl-C, or else 0.
    """
    try:
        yield
    except (faults.ReplicaError, hosts.LostProcess, Stopped) as error:
        stopped = INTERRUPTED if hosts.asked() else 0
        codes = {faults.ReplicaError: DIFFERENT, hosts.LostProcess: LOST}
        hosts.told()
        typer.echo(f"relaxjax: {error}", err=True)
        raise typer.Exit(codes.get(type(error), stopped)) from error
