"""A user's mistake is one message and exit code 2, never a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer


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
