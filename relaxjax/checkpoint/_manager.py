"""Orbax keeps the folders: a save is whole or not there, old ones go, threads write."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import future

from relaxjax.checkpoint._files import write
from relaxjax.checkpoint._folder import ITEM, move_aside, steps_in
from relaxjax.checkpoint._lock import WriterLock
from relaxjax.checkpoint._snapshot import Snapshot


class Store:
    """The checkpoints in a folder that exists; at most one save is under way.

    Attributes:
      at: the step that this run has saved or restored last, perhaps still under way.
      begins: whether a run may begin here, from the state that it gives.
    """

    begins = True

    def __init__(
        self,
        directory: Path,
        keep: int | None,
        processes: tuple[int, ...],
        lock: WriterLock,
    ):
        self._lock = lock
        self.directory, self._keep, self._processes = directory, keep, processes
        try:
            self._manager = _manager_of(directory, keep, processes, lock.shared)
        except (ArithmeticError, RecursionError, ValueError) as error:
            raise ValueError(
                f"checkpoint: {directory} has metadata of Orbax that cannot be read "
                f"({error}). Bring them back from a copy, or remove the folder of the "
                "checkpoint that is damaged"
            ) from error
        # Orbax starts a few threads, one after the other, before its save returns.
        # Processes meet in there, so only a process by itself may leave it to a thread.
        self._thread = ThreadPoolExecutor(1) if len(processes) == 1 else None
        self._under_way: Future[bool] | None = None
        self.at: int | None = None
        self._whole: int | None = None  # `at` when nothing was under way last

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, rising; nothing may be under way."""
        if self._thread:  # alone, so that the disk says what all others see
            return steps_in(self.directory)
        return sorted(self._manager.all_steps())

    def require_writer(self, asked: str, remedy: str) -> None:
        """Refuses nothing: this run writes here."""

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
            self._manager.reload()

    def begin(self, step: int, snapshot: Snapshot, metadata: Mapping[str, Any]) -> None:
        """Begins to write what is already copied; call `wait` before it."""
        self.at = step
        args = ocp.args.Composite(**{ITEM: Write(snapshot, metadata)})
        if self._thread is None:
            self._manager.save(step, args=args, force=True)
        else:
            save = self._manager.save
            self._under_way = self._thread.submit(save, step, args=args, force=True)

    def wait(self) -> None:
        """Returns when nothing is under way; raises OSError if a write failed."""
        under_way, self._under_way = self._under_way, None
        try:
            if under_way:
                under_way.result()
            self._manager.wait_until_finished()
        except Exception as error:
            failed, self.at = self.at, self._whole
            self._begin_anew()
            raise _named(error, f"step {failed} in {self.directory}") from error
        self._whole = self.at

    def _begin_anew(self) -> None:
        """Orbax would raise the error of a failed save in the next one too."""
        if self._thread is None:  # processes would wait for each other
            self._manager.reload()
            return
        with suppress(Exception):
            self._manager.close()
        how = self.directory, self._keep, self._processes, self._lock.shared
        self._manager = _manager_of(*how)

    def close(self) -> None:
        """Waits, and ends the threads."""
        try:
            self.wait()
        finally:
            if self._thread:
                self._thread.shutdown()
            self._manager.close()
            self._lock.release()


class Handler(ocp.AsyncCheckpointHandler):
    """Writes the files of a snapshot in one of Orbax's threads."""

    async def async_save(self, directory: epath.Path, args: "Write") -> list[Any]:
        """Begins to write."""

        async def commit() -> None:
            self.save(directory, args)

        return [future.CommitFutureAwaitingContractedSignals(commit())]

    def save(self, directory: epath.Path, args: "Write") -> None:
        """Writes at once."""
        write(Path(directory), args.snapshot, args.metadata)

    def restore(self, directory: epath.Path, args: Any = None) -> Any:
        """Not used: files are read without Orbax."""
        raise NotImplementedError


@ocp.args.register_with_handler(Handler, for_save=True, for_restore=True)
@dataclass
class Write(ocp.args.CheckpointArgs):
    """Arguments of a save: the state on the host, and what to put down beside it."""

    snapshot: Snapshot
    metadata: Mapping[str, Any]


def _named(error: Exception, what: str) -> OSError:
    """The error of a write, with the checkpoint that it was about."""
    number = getattr(error, "errno", None)
    why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    said = (
        f"checkpoint: {what} could not be written ({why}). The checkpoints before it "
        "are whole; the same step can be saved again"
    )
    return OSError(number, said) if number else OSError(said)


def _manager_of(
    directory: Path, keep: int | None, processes: tuple[int, ...], shared: bool
) -> ocp.CheckpointManager:
    everyone, first = len(processes) == jax.process_count(), min(processes)
    among = ocp.options.MultiprocessingOptions(
        primary_host=first,
        active_processes=None if everyone else set(processes),
        barrier_sync_key_prefix=None if everyone else f"from{first}",
    )
    options = ocp.CheckpointManagerOptions(
        max_to_keep=keep,
        create=False,
        cleanup_tmp_directories=not shared,  # they may be of a save under way
        async_options=ocp.options.AsyncOptions(create_directories_asynchronously=False),
        multiprocessing_options=among,
    )
    handlers = {ITEM: Handler()}
    return ocp.CheckpointManager(
        directory, item_names=(ITEM,), item_handlers=handlers, options=options
    )
