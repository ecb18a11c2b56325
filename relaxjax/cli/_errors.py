"""What a user must know is one message, never a traceback.

A mistake ends with exit code 2; `endings` lists the others.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from relaxjax._replicas import ReplicaError
from relaxjax.hosts import LostProcess


class Stopped(Exception):
    """Training was asked to stop before a step; the message says which."""


@contextmanager
def user_errors() -> Iterator[None]:
    """Reports what a check refuses. Put around checks, not around the work itself.

    Raises:
      typer.Exit: with code 2, where the body raised ValueError.
    """
    try:
        yield
    except ValueError as error:
        typer.echo(f"relaxjax: {error}", err=True)
        raise typer.Exit(2) from error


@contextmanager
def endings() -> Iterator[None]:
    """Reports what ends training early. Put around the work itself.

    Raises:
      typer.Exit: with code 3, where workers no longer hold the same model; with 70,
        where another process was lost; with 0, where all were asked to stop.
    """
    codes = {ReplicaError: 3, LostProcess: 70, Stopped: 0}
    try:
        yield
    except tuple(codes) as error:
        typer.echo(f"relaxjax: {error}", err=True)
        raise typer.Exit(codes[type(error)]) from error
