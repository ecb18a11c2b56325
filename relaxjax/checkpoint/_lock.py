"""One writer for a folder: a lock that ends with its process, and names its owner.

The system holds the lock (`flock`), so that none is left behind by a process that was
killed. Where it has no such locks, nothing is locked.
"""

import json
import os
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from relaxjax._core.foreign._json import SMALL, read_json
from relaxjax._core.foreign._together import gathered
from relaxjax._core.foreign._types import wrong

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

NAME = "writer.lock"
_OWNER = {"host": str, "pid": int, "since": float}
_POLL, _TRIES = 0.01, 50  # seconds, and times that a lock without an owner is tried


class _Held:
    """A locked file, and how many stores of this process write under it."""

    def __init__(self, file: IO[str], place: Path):
        self.file, self._place, self.users = file, place, 0

    def is_there(self) -> bool:
        """Whether its file is still the folder's, which may have been made anew."""
        with suppress(FileNotFoundError):
            return _is_at(self.file, self._place)
        return False

    def drop(self) -> None:
        """One store fewer; the last one lets go."""
        self.users -= 1
        if not self.users:
            if _HELD.get(self._place) is self:  # not in a fork, nor in a new folder
                self._place.unlink(missing_ok=True)
                del _HELD[self._place]
            self.file.close()


_HELD: dict[Path, _Held] = {}


class WriterLock:
    """Held from its making until `release`, by the first of a run's processes.

    Attributes:
      shared: whether this process writes into the folder already.
    """

    def __init__(self, folder: Path, processes: Sequence[int]):
        """Takes the lock; all processes of the run make it together.

        Raises:
          ValueError: another process has it; the error says which.
        """
        self._path = folder / NAME
        self._let_go: Callable[[], Any] = lambda: None
        other, self.shared = None, False
        if jax.process_index() == processes[0]:
            file, other = _taken(self._path)
            place = self._path.resolve()
            if file:
                _HELD[place] = _Held(file, place)
            # A process of another container may have the same host name and number.
            held = _HELD.get(place)
            self.shared = other is not None and held is not None and held.is_there()
            other = None if self.shared else other
            if held and (file or self.shared):
                held.users += 1  # let go of at the end of the program too
                self._let_go = weakref.finalize(self, held.drop)
        if len(processes) > 1:
            refused = gathered("Checkpoints", np.bool_(other is not None))
            if refused.any():
                other = other or _owner(self._path)
        if other is not None:
            raise ValueError(
                f"Checkpoints: {_described(other)} writes checkpoints into {folder}. "
                "Two runs there would destroy each other's: end that one, or name "
                "another folder; to look only, for evaluation, open it read_only=True"
            )

    def release(self) -> None:
        """Lets others write; again, and nothing happens."""
        self._let_go()


def _drop_in_a_fork() -> None:
    """A fork has no part in the lock, which would live on with it."""
    for held in _HELD.values():
        held.file.close()
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_in_a_fork)


def _taken(path: Path) -> tuple[IO[str] | None, dict[str, Any] | None]:
    """The locked file, or who has it; neither where there are no locks."""
    tries = _TRIES
    while fcntl is not None:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            if (other := _owner(path)) or tries == 0:
                return None, other
            time.sleep(_POLL)  # its owner has not written its name yet, or removed it
            tries -= 1
            continue
        except OSError:  # a file system without locks
            file.close()
            break
        with suppress(FileNotFoundError):
            if _is_at(file, path):
                file.truncate(0)
                json.dump({**_me(), "since": time.time()}, file)
                file.flush()
                return file, None
        file.close()  # its owner has just removed it
    return None, None


def _is_at(file: IO[str], path: Path) -> bool:
    return os.path.samestat(os.fstat(file.fileno()), path.stat())


def _me() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid()}


def _owner(path: Path) -> dict[str, Any]:
    try:
        told = read_json(path, SMALL)
    except (OSError, ValueError):
        return {}
    return {} if wrong(_OWNER, told) or not told["host"].isprintable() else told


def _described(owner: dict[str, Any]) -> str:
    if not owner:
        return "another process"
    minutes = max(0.0, time.time() - owner["since"]) / 60
    return f"process {owner['pid']} on {owner['host']} (for {minutes:.1f} minutes)"
