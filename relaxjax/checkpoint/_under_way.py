"""Saves that this process has under way: who asks what a folder holds waits for them.

A second `Checkpoints` of the process, as of a notebook cell that runs again, knows
nothing of the first one's last save, nor does a reader. A fork has none of its parent's
saves. A thread that saves waits for no save.
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
