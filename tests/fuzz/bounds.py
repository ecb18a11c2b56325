"""How long one try may take."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

LONGEST = 5  # seconds


@contextmanager
def bounded(what: Any = "it") -> Iterator[None]:
    """Within five seconds: a hang is an error of this test."""

    def late(number: int, frame: Any) -> None:
        pytest.fail(f"{what} takes more than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
