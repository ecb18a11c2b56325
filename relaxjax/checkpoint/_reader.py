"""A run's folder for those who only look: nothing is written there or cleaned."""

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import SupportsIndex

import numpy as np

from relaxjax._core.foreign._folders import local_path
from relaxjax._core.foreign._together import gathered
from relaxjax.checkpoint._agreed import together
from relaxjax.checkpoint._folder import (
    files_of,
    found,
    on_disk,
    step_of,
    steps_in,
    steps_seen,
)
from relaxjax.checkpoint._saved import Saved

_POLL = 0.2  # seconds between two looks


def latest(directory: str | os.PathLike[str]) -> int | None:
    """The newest step that has a checkpoint in a run's folder; None if no step has.

    The folder is only read: a run may write into it meanwhile.

    Args:
      directory: folder of a run's `Checkpoints`.

    Example:
      >>> import tempfile, relaxjax
      >>> relaxjax.checkpoint.latest(tempfile.mkdtemp()) is None
      True
    """
    folder = local_path("latest", "directory", directory)
    return max(steps_in(folder), default=None)


def opened(
    caller: str,
    folder: Path,
    listed: Callable[[], list[int]],
    step: SupportsIndex | None,
    processes: int = 1,
) -> tuple[int, Saved]:
    """A checkpoint's step and files; the newest where `step` is None.

    One that the run removes before it is open, since it keeps a few, is passed over for
    what there is then. One that is listed again has not been removed. Of several
    processes, all open the same one, or all raise.
    """
    before, wanted = None, None if step is None else step_of(caller, step)
    while True:
        at = found(caller, folder, listed(), wanted)
        act = partial(_unless_removed, caller, files_of(folder, at), at != before)
        saved = together(caller, processes, act)
        if processes > 1 and gathered(caller, np.bool_(saved is None)).any():
            saved = None  # as for all
        if saved is not None:
            return at, saved
        before = at


def _unless_removed(caller: str, files: Path, may_be: bool) -> Saved | None:
    """The files of a checkpoint; None where they are gone and may be."""
    try:
        saved = Saved(files)
    except (OSError, ValueError):
        if files.exists() or not may_be:
            raise
        return None
    folder, step = files.parent, saved.metadata["step"]
    if folder.name != str(step):
        raise ValueError(
            f"{caller}: {folder} holds the checkpoint of step {step}, under another "
            f"step's name: give the folder the name {step}"
        )
    return saved


class ReadStore:
    """The checkpoints in a folder, as `Store`, of which another process is the writer.

    Attributes:
      at: the step that was restored last.
      begins: whether a run may begin here, from the state that it gives.
    """

    begins = False

    def __init__(self, directory: Path, processes: Sequence[int]):
        self.directory, self._processes = directory, len(processes)
        self.at: int | None = None

    def restored(self, step: int) -> None:
        """This one was looked at last."""
        self.at = step

    def steps(self) -> list[int]:
        """Steps that have a checkpoint now, as process 0 sees them."""
        return steps_seen(self.directory, self._processes)

    def wait(self) -> None:
        """Nothing is under way here."""

    def wait_for(self, step: int, timeout: float | None) -> None:
        """Returns when there is a checkpoint of this step, or a newer one."""
        # Looks are counted, and not seconds: all processes of a reader look together.
        looks = _looks(timeout)
        look = partial(steps_seen, self.directory, self._processes, on_disk)
        while not (steps := look()) or steps[-1] < step:
            looks = None if looks is None else looks - 1
            if looks is not None and looks <= 0:
                raise TimeoutError(
                    f"wait: no checkpoint of step {step} came to {self.directory} in "
                    f"{timeout:g} s, only {steps or 'none'}; is the run that writes "
                    "there alive?"
                )
            time.sleep(_POLL)

    def require_writer(self, asked: str, remedy: str) -> None:
        """Refuses what would change the folder."""
        raise ValueError(
            f"{asked} in {self.directory}, which was opened read_only=True; {remedy}"
        )

    def close(self, *, together: bool = True) -> None:
        """Nothing is open."""


def _looks(timeout: float | None) -> float | None:
    """How often to look in these seconds, once at least; None: until it is there."""
    if timeout is None:
        return None
    if math.isnan(timeout):
        raise ValueError(
            f"wait: timeout={timeout!r} must be a number of seconds, or None to wait "
            "as long as it takes"
        )
    return None if timeout == math.inf else math.ceil(max(timeout, 0) / _POLL) + 1
