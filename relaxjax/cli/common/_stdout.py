"""Standard output that holds nothing but what the command itself prints."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress


@contextmanager
def stdout_alone(*, wanted: bool) -> Iterator[None]:
    """What libraries write to descriptor 1 themselves, as gloo does, goes to stderr."""
    if not wanted or not _is_descriptor_1():
        yield
        return
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding)
    os.dup2(2, 1)
    try:
        with redirect_stdout(own):
            yield
    finally:
        os.dup2(own.fileno(), 1)
        own.close()


def _is_descriptor_1() -> bool:
    """Not where a test or a notebook has put something else there."""
    with suppress(OSError, ValueError, AttributeError):
        return sys.stdout.fileno() == 1
    return False
