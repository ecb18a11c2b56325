"""What a user must know is one message, never a traceback.

A mistake ends with exit code 2, workers that went apart with 3.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from relaxjax._replicas import ReplicaError


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
def lost_replicas() -> Iterator[None]:
    """Reports workers that no longer hold the same model.

    Raises:
      typer.Exit: with code 3, where the body raised `relaxjax.ReplicaError`.
    """
    try:
        yield
    except ReplicaError as error:
        typer.echo(f"relaxjax: {error}", err=True)
        raise typer.Exit(3) from error
