"""Who writes checkpoints: a save is whole or not there, and a thread writes it.

    20.relaxjax-tmp-5f1e-3/state/..    under way, the third save of this run
    20/state/..                        whole: the folder above, renamed

Each process writes its own files in a thread. The first one's thread renames the folder
when it sees all of them, and never before. Who could not write is asked at the next
call, which all make together, so that all of them raise, or none. What a killed process
leaves, the next run removes.
"""

import os
import re
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from relaxjax._core.foreign._together import gathered
from relaxjax.checkpoint._files import file_of, write
from relaxjax.checkpoint._folder import ITEM, is_own, move_aside, on_disk, steps_seen
from relaxjax.checkpoint._lock import WriterLock
from relaxjax.checkpoint._snapshot import Snapshot
from relaxjax.checkpoint._under_way import begun, is_writer, settle

_POLL = 0.05  # seconds between two looks for others' files
_PATIENCE = 30.0  # of all of them; then `Store.wait` finds out
_LEFT = re.compile(r"\d+\.(relaxjax|orbax-checkpoint)-tmp")  # Orbax wrote them once


class _Save(NamedTuple):
    """A save under way."""

    step: int
    folder: Path  # until it is whole
    written: Future[None]  # this process's files
    agreed: Future[bool]  # whether all have written, as `Store.wait` finds out
    whole: Future[bool]  # whether the folder was renamed, by the first process


class Store:
    """The checkpoints in a folder that exists; at most one save is under way.

    Attributes:
      at: the step that this run has saved or restored last, perhaps still under way.
      known: the newest step that it has seen or saved; None: it has not looked.
      begins: whether a run may begin here, from the state that it gives.
    """

    begins = True

    def __init__(
        self,
        directory: Path,
        keep: int | None,
        processes: tuple[int, ...],
        lock: WriterLock,
        name: str,
    ):
        """Removes what a killed run has left; `name` is this run's on all processes."""
        self.directory, self._keep, self._processes = directory, keep, processes
        self._lock, self._name, self._saves = lock, name, 0
        self._first = jax.process_index() == processes[0]
        self._thread = ThreadPoolExecutor(1, initializer=is_writer)
        self._under_way: _Save | None = None
        self._is_closed = False
        self.at: int | None = None
        self.known: int | None = None
        self._before: int | None = None  # `at` before the save under way
        settle(directory)
        if self._first and not lock.shared:  # or they may be of a save under way
            for path in directory.iterdir():
                if _LEFT.match(path.name):
                    _remove(path)

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, rising, as the first process sees them."""
        return steps_seen(self.directory, len(self._processes))

    def require_writer(self, asked: str, remedy: str) -> None:
        """Refuses one that was closed: another run may write here since then."""
        del remedy
        if self._is_closed:
            raise ValueError(
                f"{asked} of Checkpoints that were closed: another run may write to "
                f"{self.directory} by now; save before close(), or inside of `with`, "
                "or open the folder again"
            )

    def wait_for(self, step: int, timeout: float | None) -> None:
        """Refused: nobody else writes here."""
        del timeout
        raise ValueError(
            f"wait: step={step!r} where this run itself writes; open the folder "
            "read_only=True to wait for the checkpoint of another process"
        )

    def forget_after(self, step: int) -> None:
        """Moves newer checkpoints aside; all processes call it together."""
        newer = [other for other in self.steps() if other > step]
        if newer:
            move_aside(self.directory, newer, self._processes)

    def begin(self, step: int, snapshot: Snapshot, metadata: Mapping[str, Any]) -> None:
        """Begins to write what is already copied; call `wait` before it."""
        folder, run = self._temporary(step), self._thread.submit
        written = run(_write, folder / ITEM, snapshot, metadata)
        agreed: Future[bool] = Future()
        whole = run(self._commit, step, folder, written, agreed)
        begun(self.directory, whole)
        self._under_way = _Save(step, folder, written, agreed, whole)
        self._before, self.at, self.known = self.at, step, step

    def restored(self, step: int) -> None:
        """The run goes on from here, and has seen what is there."""
        self.at, self.known = step, max([step, *self.steps()])

    def wait(self) -> None:
        """Returns when nothing is under way; all processes call it together.

        Raises:
          OSError: a process could not write; on all of them.
        """
        if (save := self._under_way) is None:
            return
        error = save.written.exception()
        self._under_way = None
        failed = _failed(error, self._processes)
        save.agreed.set_result(not failed)
        moved = save.whole.exception()
        if not failed:
            if self._first and not moved and not save.whole.result():
                late = self._thread.submit(self._commit_late, save.step, save.folder)
                moved = late.exception()
            error, failed = moved, _failed(moved, self._processes)
        if failed:
            self.at = self._before
            if self._first:
                _remove(save.folder)
            what = f"step {save.step} in {self.directory}"
            alone = len(self._processes) == 1
            raise _named(error, failed, alone, what) from error

    def close(self, *, together: bool = True) -> None:
        """Waits, and ends the thread; not `together`: others may never come to wait."""
        try:
            if together or len(self._processes) == 1:
                self.wait()
        finally:
            self._is_closed = True
            self._thread.shutdown()
            self._lock.release()

    def _temporary(self, step: int) -> Path:
        self._saves += 1
        return self.directory / f"{step}.relaxjax-tmp-{self._name}-{self._saves}"

    def _commit(
        self, step: int, folder: Path, written: Future[None], agreed: Future[bool]
    ) -> bool:
        """Renames the folder when all have written, and says whether it did."""
        if not self._first or written.exception():
            return False
        for _ in range(int(_PATIENCE / _POLL)):
            if agreed.done() and not agreed.result():
                return False
            if not self._unseen(folder):
                self._rename(step, folder)
                return True
            if wait_for([agreed], _POLL).done:
                return False  # all have written: `_commit_late`
        return False

    def _commit_late(self, step: int, folder: Path) -> None:
        """The same, after all have written; a folder may show it a little later."""
        end = time.monotonic() + _PATIENCE
        while unseen := self._unseen(folder):
            if time.monotonic() > end:
                raise OSError(
                    f"process {self._processes[0]} does not see the files of processes "
                    f"{unseen} in {folder}"
                )
            time.sleep(_POLL)
        self._rename(step, folder)

    def _unseen(self, folder: Path) -> list[int]:
        """Processes whose files are not there."""
        here = folder / ITEM
        return [i for i in self._processes if not file_of(here, i).exists()]

    def _rename(self, step: int, folder: Path) -> None:
        os.rename(folder, self.directory / str(step))
        if not self._keep:
            return
        own = [x for x in on_disk(self.directory) if is_own(self.directory, x)]
        for old in own[: -self._keep]:
            # Whole or not there. This process alone does it: it counts no save.
            aside = self.directory / f"{old}.relaxjax-tmp-{self._name}-old"
            with suppress(OSError):  # or after the next save
                os.rename(self.directory / str(old), aside)
                _remove(aside)


def _remove(path: Path) -> None:
    """A folder with what it has, as far as can be; of a link, the link alone."""
    with suppress(OSError):
        path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)


def _write(folder: Path, snapshot: Snapshot, metadata: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, snapshot, metadata)


def _failed(error: BaseException | None, processes: tuple[int, ...]) -> dict[int, int]:
    """The error numbers of processes that failed, or -1; the same on all."""
    number = 0 if error is None else getattr(error, "errno", None) or -1
    if len(processes) == 1:
        return {processes[0]: number} if number else {}
    numbers = gathered("checkpoint", np.int32(number))
    return {i: int(numbers[i]) for i in processes if numbers[i]}


def _named(
    error: BaseException | None, failed: dict[int, int], alone: bool, what: str
) -> OSError:
    """The error of a write, with the checkpoint that it was about."""
    own = f"{type(error).__name__}: {error}" if error else "its own error says why"
    whys = {i: os.strerror(n) if n > 0 else own for i, n in failed.items()}
    said = [why if alone else f"process {i}: {why}" for i, why in whys.items()]
    text = (
        f"checkpoint: {what} could not be written ({'; '.join(said)}). The checkpoints "
        "before it are whole; the same step can be saved again"
    )
    number = max(failed.values())
    return OSError(number, text) if number > 0 else OSError(text)
