"""What ends a command early: one message instead of a traceback, and exit codes."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer

from relaxjax import faults, hosts

MISTAKE, DIFFERENT, LOST, UNWRITTEN, INTERRUPTED, UNREAD = 2, 3, 70, 74, 130, 141
EXIT_CODES = {
    0: "done, or stopped by SIGTERM",
    1: "a law that check refutes, or a bug with its traceback",
    MISTAKE: "a mistake on the command line",
    DIFFERENT: "workers' models differ that must not",
    LOST: "another process was lost or stuck",
    UNWRITTEN: "a full disk",
    INTERRUPTED: "interrupted by Ctrl-C, at once or before the next step",
    UNREAD: "nobody reads its output any more, as after `head -1`",
}


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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


@contextmanager
def quiet_pipes() -> Iterator[None]:
    """Ends without a word where the reader of stdout has gone; put around everything.

    Click and Rich make status 1 of it, and Python a warning at its end.

    Raises:
      SystemExit: with code 141, which is 128 + SIGPIPE, as a shell has it; with 74, and
        a message, where a disk is full.
    """
    try:
        try:
            yield
        finally:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
    except BaseException as error:
        if _is_of_a_pipe(error):
            _drop_output()
            raise SystemExit(UNREAD) from None
        if not isinstance(error, OSError) or error.errno not in _FULL:
            raise
        where = "" if error.filename is None else f" {error.filename}"
        _drop_output()
        with suppress(OSError):
            typer.echo(f"relaxjax: cannot write{where}: {error.strerror}", err=True)
        _drop_output()  # stderr's as well, or Python ends with a status of its own
        raise SystemExit(UNWRITTEN) from None


def _is_of_a_pipe(error: BaseException | None) -> bool:
    """Whether it is a broken pipe, or the end that a library has made of one."""
    if isinstance(error, SystemExit) and error.code == 1:
        return isinstance(error.__context__, BrokenPipeError)
    return isinstance(error, BrokenPipeError)


def _drop_output() -> None:
    """What is left in buffers goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
