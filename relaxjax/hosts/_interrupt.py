"""Ctrl-C at any moment: one line that says what is kept, and exit status 130.

Python runs a signal's handler between two of its own instructions, which is after XLA
has compiled, minutes later perhaps; and JAX swallows what a handler raises inside a
callback. So a thread reads the signal as it arrives (`signal.set_wakeup_fd`) and ends
the process by itself, without the destructors that crash under a running computation:

    at once               where nobody listens, and at a second Ctrl-C
    by the program itself where it does (`listens`) and has `heard`; a line says so if
                          that takes longer than `_PATIENCE`
    after `_PATIENCE`     where it listens, but Python does not run
"""

import atexit
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os.path import exists
from pathlib import Path
from types import FrameType

STATUS = 130
_PATIENCE = 1.0  # seconds for Python to come to itself
_SHOW_CURSOR = "\x1b[?25h\n"  # which a progress bar hides


class _Interrupt:
    """What the thread and the program know of each other."""

    def __init__(self) -> None:
        self.checkpoints: Callable[[], str] = lambda: ""
        self.nothing = "nothing was written"
        self.files: dict[Path, bool] = {}  # whether they are whole
        self.installed = self.listens = False
        self.waits = ""
        self.last: Callable[[], None] = lambda: None
        self.asked = threading.Event()
        self.heard = threading.Event()
        self.ends = threading.Lock()  # taken once, by who ends the process


_now = _Interrupt()


def keeps(checkpoints: Callable[[], str] = lambda: "", *, nothing: str) -> None:
    """States what a Ctrl-C leaves behind from here on, beside files.

    Args:
      checkpoints: says in a few words what is on disk; "" if there is nothing.
      nothing: what is said where nothing is kept.
    """
    _now.checkpoints, _now.nothing = checkpoints, nothing


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Put around the writing of a file: `kept` names it, whole or not."""
    _now.files[path] = False
    yield
    _now.files[path] = True


def kept() -> str:
    """What is on disk, in a few words: the last checkpoint and the files."""
    files = _now.files.items()
    whole = ", ".join(str(path) for path, done in files if done)
    begun = ", ".join(str(path) for path, done in files if not done and exists(path))
    said = [_now.checkpoints(), whole and f"wrote {whole}"]
    said.append(begun and f"perhaps not whole: {begun}")
    return "; ".join(filter(None, said)) or _now.nothing


@contextmanager
def listens(waits: str, last: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Inside, the program's own handler calls `heard`, and the program ends by itself.

    Args:
      waits: what is said if that takes a while.
      last: what is done before the process ends at once after all.
    """
    _now.listens, _now.waits, _now.last = True, waits, last
    yield  # after an exception, the program is about to end
    with _now.ends:  # the thread, which ends the process, comes first
        _now.listens = False
    told()


def end_if_asked() -> None:
    """Ends the process where a Ctrl-C came too late for those that listened."""
    if asked():
        _end()


def told() -> None:
    """Says that the program has told how it ends: nothing else is said."""
    _now.waits = ""


def heard() -> None:
    """Says that the program ends by itself, for it runs, and has been asked to."""
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
    # Called last of all, when nothing is left that could hang.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait, args=(reader,), daemon=True).start()


def _left_to_thread(number: int, frame: FrameType | None) -> None:
    """The handler; Python needs one, or the signal would end the process in silence."""


def _wait(reader: socket.socket) -> None:
    while True:
        try:
            numbers = reader.recv(64)
        except TimeoutError:
            reader.settimeout(None)
            if _now.waits:
                _say(_now.waits)
            continue
        if signal.SIGINT not in numbers or _ignored():
            continue
        again = asked() or numbers.count(signal.SIGINT) > 1
        _now.asked.set()  # before `listens` is read, which the program writes first
        if again or not _listened() or not _now.heard.wait(_PATIENCE):
            _end()
        reader.settimeout(_PATIENCE)


def _ignored() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def _listened() -> bool:
    return _now.listens and signal.getsignal(signal.SIGINT) is not _left_to_thread


def _end() -> None:
    """Says what is kept, and ends the process as it is."""
    _now.ends.acquire()
    with suppress(Exception):
        _now.last()
    _say(f"interrupted; {kept()}")
    os._exit(STATUS)


def _say(words: str) -> None:
    cursor = _SHOW_CURSOR if sys.stderr and sys.stderr.isatty() else ""
    with suppress(OSError):
        os.write(2, f"{cursor}relaxjax: {words}\n".encode())
