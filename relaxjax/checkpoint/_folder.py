"""The folder of a run: which steps it holds, and those that are gone back from.

    20/ 30/ ..              checkpoints; a folder of this name is whole
    forgotten/1/30/ ..      what was newer when the run first went back; nothing is lost

A branch is moved newest first, so that a process killed in between leaves a beginning
of the branch, as a shorter run would.
"""

import operator
import os
import re
from collections.abc import Callable, Sequence
from os.path import isdir
from pathlib import Path
from typing import Any

import jax
import numpy as np

from relaxjax._core.foreign._together import gathered
from relaxjax.checkpoint._files import INDEX
from relaxjax.checkpoint._under_way import settle
from relaxjax.workers import broadcast_from_first_process

ITEM = "state"
_FORGOTTEN = "forgotten"
_NUMBER = re.compile("0|[1-9][0-9]{0,17}")  # as `str` writes it


def steps_in(folder: Path) -> list[int]:
    """Steps that have a checkpoint, rising, those under way in this process too."""
    settle(folder)
    return on_disk(folder)


def on_disk(folder: Path) -> list[int]:
    """Steps that have a checkpoint on disk, rising.

    What else has a number for its name, such as a file or what is left of a copy that
    was interrupted, is no checkpoint.
    """
    before = None
    while (names := _numbers_in(folder)) != before:  # a run may rename them meanwhile
        if whole := [step for step in names if files_of(folder, step).is_dir()]:
            return whole
        before = names
    return []


def steps_seen(
    folder: Path, processes: int, listed: Callable[[Path], list[int]] = steps_in
) -> list[int]:
    """The same as process 0 sees them, on all processes, which call it together."""
    here = listed(folder)
    if processes == 1:
        return here
    counts = gathered("Checkpoints", np.int32(len(here)))
    padded = np.zeros(int(counts[0]), np.int64)
    padded[: len(here)] = here[: len(padded)]
    sent = broadcast_from_first_process(padded.view(np.uint32), processes)  # by JAX
    return np.asarray(sent).view(np.int64).tolist()


def _numbers_in(folder: Path) -> list[int]:
    if not isdir(folder):
        return []
    names = [path.name for path in folder.iterdir()]
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))


def files_of(folder: Path, step: int) -> Path:
    """The folder with the files of a checkpoint."""
    return folder / str(step) / ITEM


def is_own(folder: Path, step: int) -> bool:
    """Whether relaxjax wrote what has this number, and not another library."""
    return (files_of(folder, step) / INDEX).exists()


def step_of(caller: str, step: Any) -> int:
    """A number of steps, of Python, NumPy or JAX, as Python's."""
    try:
        number = -1 if isinstance(step, bool) else operator.index(step)
    except TypeError:
        raise TypeError(
            f"{caller}: step={step!r} must be a whole number of steps; of a count that "
            "has an axis over the workers give one element, int(count[0])"
        ) from None
    if number < 0:
        raise ValueError(f"{caller}: step={step!r} must be 0 or more steps")
    return number


def found(caller: str, folder: Path, steps: Sequence[int], step: int | None) -> int:
    """The step asked for, or the newest; refuses one that has no checkpoint."""
    if step in steps or (step is None and steps):
        return steps[-1] if step is None else step
    asked = "" if step is None else f" of step {step}"
    raise ValueError(
        f"{caller}: there is no checkpoint{asked} in {folder}, only of "
        f"{[*steps] or 'no step'}"
    )


def move_aside(folder: Path, steps: Sequence[int], processes: Sequence[int]) -> None:
    """Moves checkpoints into a folder of their own; all processes call it together."""
    error = None
    if jax.process_index() == processes[0]:
        try:
            _moved(folder, steps)
        except OSError as raised:
            error = raised
    if len(processes) > 1:
        failed = gathered("restore", np.bool_(bool(error)))
        if failed.any() and error is None:
            raise OSError(f"restore: process {processes[0]} could not move {steps}")
    if error:
        raise error


def _moved(folder: Path, steps: Sequence[int]) -> None:
    there = folder / _FORGOTTEN
    numbers = _numbers_in(there)
    aside = there / str(max(numbers, default=0) + 1)
    aside.mkdir(parents=True)
    for step in sorted(steps, reverse=True):
        os.rename(folder / str(step), aside / str(step))
