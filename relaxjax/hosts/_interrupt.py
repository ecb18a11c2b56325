"""Ctrl-C at any moment: one line that says what is kept, and exit status 130.

Python runs a signal's handler between two of its own instructions, which is after XLA
has compiled, minutes later perhaps; and JAX swallows what a handler raises inside a
callback. So a thread reads the signal as it arrives (`signal.set_wakeup_fd`) and ends
the process by itself, without the destructors that crash under a running computation.
A loop that stops between two steps hears the signal first, and saves:

    at once                 where nobody listens, or there is nothing to save; and at a
                            second Ctrl-C
    between two steps       where somebody has: `heard` says so
    after `_PATIENCE`       where somebody listens, but Python does not run
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

STATUS = 130
_PATIENCE = 1.0  # seconds for Python to come to itself
_NOTHING = "nothing was written"
_SHOW_CURSOR = "\x1b[?25h\n"  # which a progress bar hides


class _Interrupt:
    """What the thread and the program know of each other."""

    def __init__(self) -> None:
        self.kept, self.at_once = _NOTHING, False
        self.installed = False
        self.last: Callable[[], None] = lambda: None
        self.asked = threading.Event()
        self.heard = threading.Event()


_now = _Interrupt()


def keeps(what: str, *, at_once: bool = False) -> None:
    """States what a Ctrl-C leaves behind from here on, in a few words.

    Args:
      what: the words.
      at_once: whether to stop between two steps would save nothing more.
    """
    _now.kept, _now.at_once = what, at_once


def heard(last: Callable[[], None] = lambda: None) -> None:
    """Says that the program stops by itself: at the next step, and saves.

    Args:
      last: what is done before the process ends at once after all.
    """
    _now.last = last
    _now.heard.set()


def installed() -> bool:
    """Whether a second Ctrl-C ends the process, without an exception."""
    return _now.installed


def asked() -> bool:
    """Whether there has been a Ctrl-C."""
    return _now.asked.is_set()


def install() -> None:
    """Takes Ctrl-C over, for a program's main thread; call it first of all."""
    _now.installed = True
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _left_to_thread)
    threading.Thread(target=_wait, args=(reader,), daemon=True).start()


def finish() -> None:
    """Ignores Ctrl-C from here on: all is done, and the process is about to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _left_to_thread(number: int, frame: FrameType | None) -> None:
    """The handler; Python needs one, or the signal would end the process in silence."""


def _wait(reader: socket.socket) -> None:
    while numbers := reader.recv(64):
        if signal.SIGINT not in numbers:
            continue
        handler = signal.getsignal(signal.SIGINT)
        if handler is signal.SIG_IGN:
            continue
        alone = handler is _left_to_thread or _now.at_once
        if alone or asked() or numbers.count(signal.SIGINT) > 1:
            _end()
        _now.asked.set()
        if not _now.heard.wait(_PATIENCE):
            _end()


def _end() -> None:
    """Says what is kept, and ends the process as it is."""
    cursor = _SHOW_CURSOR if sys.stderr and sys.stderr.isatty() else ""
    with suppress(Exception):
        _now.last()
    line = f"{cursor}relaxjax: interrupted; {_now.kept}\n"
    with suppress(OSError):
        os.write(2, line.encode())
    os._exit(STATUS)
