"""Saves that this process has under way; whoever lists a folder's steps waits for them.

A notebook cell that runs again makes a second `Checkpoints`. It does not know of the
save that the first one began last, and neither does a reader in this process. A fork
does not wait for its parent's saves, and a thread that saves waits for none.
"""

import os
import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path

_SAVES: dict[tuple[int, Path], list[Future[bool]]] = {}
_HERE = threading.local()


def begun(folder: Path, save: Future[bool]) -> None:
    """A save into the folder is under way until it is done."""
    saves = _SAVES.setdefault(_key(folder), [])
    saves.append(save)  # other threads may save there too: each change is one
    for over in [other for other in saves if other.done()]:
        with suppress(ValueError):
            saves.remove(over)


def is_writer() -> None:
    """This thread saves."""
    _HERE.writes = True


def settle(folder: Path) -> None:
    """Waits for the saves into the folder, through whichever `Checkpoints`."""
    if not getattr(_HERE, "writes", False):
        wait(_SAVES.get(_key(folder), []))


def _key(folder: Path) -> tuple[int, Path]:
    return os.getpid(), folder.resolve()
