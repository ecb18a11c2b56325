"""Checkpoints of a run in a folder: saved now and then, restored to the bit."""

import os
from collections.abc import Mapping
from typing import Any, SupportsIndex

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_whole
from relaxjax._core.foreign._folders import local_path
from relaxjax._core.foreign._switches import unswitched
from relaxjax.checkpoint._agreed import together
from relaxjax.checkpoint._files import require_shared, writable_folder
from relaxjax.checkpoint._folder import step_of
from relaxjax.checkpoint._lock import WriterLock
from relaxjax.checkpoint._manager import Store
from relaxjax.checkpoint._plan import require_same_run, structure_of
from relaxjax.checkpoint._reader import ReadStore, opened
from relaxjax.checkpoint._resize import Resized, restored
from relaxjax.checkpoint._slices import slices_of
from relaxjax.checkpoint._snapshot import snapshot
from relaxjax.checkpoint._tree import workers_in
from relaxjax.workers import workers_of


class Checkpoints:
    """The checkpoints of one run; also a context manager that closes itself.

    All processes make it, and call its methods, together.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        mesh: Any,
        *,
        every: int = 1,
        keep: int | None = 3,
        plan: Mapping[str, str] | None = None,
        axis_name: AxisName | None = None,
        read_only: bool = False,
    ):
        """Opens a folder, and makes it if it does not exist.

        Args:
          directory: folder of this run alone, shared by all processes.
          mesh: mesh of the workers.
          every: number of steps from one save to the next.
          keep: number of checkpoints to keep, the newest; None keeps all.
          plan: description of the run, see `plan_of`; with None, only trees are
            compared.
          axis_name: the data-parallel axes; None means all axes of the mesh.
          read_only: look only, as an evaluator beside the run does: nothing is made,
            cleaned or saved; `steps` and `restore` show what is there now.

        Raises:
          TypeError: `mesh` is not a mesh.
          ValueError: `every` or `keep` is below 1; the folder cannot be written
            to, is not the same one for all processes, or another run writes into it.
        """
        require_whole("Checkpoints", "every", every)
        if keep is not None:
            require_whole("Checkpoints", "keep", keep)
        self._workers = workers_of(mesh, axis_name, "Checkpoints")
        self._every, self._plan = int(every), dict(plan or {})
        self._processes = self._workers.process_indices
        self._store: Any
        folder = local_path("Checkpoints", "directory", directory).absolute()
        if read_only:
            self._store = ReadStore(folder, self._processes)
        else:
            self._store = _opened(folder, keep and int(keep), self._processes)
        self._report: Resized | None = None
        self._why_not = ""

    @property
    def report(self) -> Resized | None:
        """How the last `restore` resized the state; None if it did not."""
        return self._report

    @property
    def steps(self) -> list[int]:
        """Steps that have a checkpoint, rising; waits for one that is being written."""
        self.wait()
        return self._store.steps()

    @property
    def why_not(self) -> str:
        """Why the last `save` returned False; "" if it saved."""
        return self._why_not

    def is_due(self, step: SupportsIndex) -> bool:
        """Whether a save is due after this number of steps, and not made yet."""
        step = step_of("is_due", step)
        return step % self._every == 0 and step != self._store.at

    def save(self, step: SupportsIndex, state: Any, *, now: bool = False) -> bool:
        """Saves if a save is due; the files are written while training goes on.

        What it needs is copied before it returns: the state may be donated.

        Args:
          step: number of steps taken, of Python, NumPy or JAX.
          state: a tree. Each `jax.Array` belongs to the workers, [n, ...]; what belongs
            to the training loop is a Python number, a text or a NumPy array.
          now: save at any step, for example before a program ends.

        Returns:
          Whether it saved. It did not, and `why_not` says so, where no save was due, or
          the run has saved or restored this step last.

        Raises:
          TypeError: `step` is not a whole number, or a leaf has another type.
          ValueError: arrays do not have an axis over the workers; the folder has a
            checkpoint as new or newer, which a restart would take instead: the run has
            restored an older one, or none; another one of this process saves there; it
            was closed.
          OSError: the save before this one could not be written, by one process or
            several; all of them raise it.
        """
        step = step_of("save", step)
        self._store.require_writer(
            f"save: step {step}", "only the run's own process writes there"
        )
        if step == self._store.at:
            self._store.wait()  # for it may have failed
        self._why_not = self._reason_against(step, now)
        if self._why_not:
            return False
        self._require_newest(step)

        def described() -> dict[str, Any]:
            self._require_workers(state)
            return {
                "step": step,
                "workers": self._workers.n,
                "mesh": self._axes,
                "slices": slices_of(state),
                "plan": {**self._plan, **structure_of(state)},
            }

        metadata = together("save", len(self._processes), described)
        self._store.begin(step, snapshot(state, self._processes), metadata)
        return True

    def restore(
        self,
        state: Any,
        *,
        step: SupportsIndex | None = None,
        forget_newer: bool = False,
    ) -> tuple[int, Any]:
        """The newest checkpoint; or 0 and `state` itself, where there is no checkpoint.

        A checkpoint of another number of workers, or of axes of other sizes, is
        resized, see `resized`, and `report` says how. Otherwise everything is as it
        was, to the bit.

        Args:
          state: a tree such as was saved, as the run begins: it says what there is and
            where arrays lie.
          step: step of the checkpoint; None for the newest.
          forget_newer: go on from this step, and not from newer ones: they are moved to
            `forgotten/1` (`2`, ..) in the folder. Without it, a run that has restored
            an older step may look, and save nothing that is not newer than all.

        Returns:
          `(step, state)`: the number of steps taken, and the state after them.

        Raises:
          ValueError: a file is not as it was written; the checkpoint is of another
            relaxation or model; a state forbids the resize; `step` has no checkpoint.
        """
        if forget_newer:
            self._store.require_writer(
                "restore: forget_newer=True moves what is newer",
                "leave one of them out",
            )
        self._require_workers(state)
        self._report = None
        if step is None and self._store.begins and not self.steps:
            return 0, state
        folder, count = self._store.directory, len(self._processes)
        step, saved = opened("restore", folder, lambda: self.steps, step, count)

        def filled() -> tuple[Any, Resized | None]:
            require_same_run(saved.metadata["plan"], self._plan)
            with unswitched():
                return restored(saved, state, self._axes)

        state, self._report = together("restore", count, filled)
        if forget_newer:
            self._store.forget_after(step)
        self._store.restored(step)
        return step, state

    def wait(
        self, step: SupportsIndex | None = None, *, timeout: float | None = None
    ) -> None:
        """Returns when the last save is on disk; or, opened read_only, a step's.

        Args:
          step: where another process writes, wait for its checkpoint of this step, or
            of a newer one.
          timeout: seconds to wait for it; None: as long as it takes.

        Raises:
          OSError: the save could not be written.
          TimeoutError: the step did not come; a kind of OSError.
          ValueError: `step` where this process writes.
        """
        if step is None:
            self._store.wait()
        else:
            self._store.wait_for(step_of("wait", step), timeout)

    def close(self) -> None:
        """Waits, and ends the threads.

        Raises:
          OSError: the last save could not be written.
        """
        self._store.close()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *error: object) -> None:
        self._store.close(together=error[0] is None)

    @property
    def _axes(self) -> dict[str, int]:
        """The data-parallel axes, and their sizes."""
        return dict(zip(self._workers.axis_name, self._workers.sizes, strict=True))

    def _reason_against(self, step: int, now: bool) -> str:
        if step == self._store.at:
            return f"save: step {step} is what this run has saved or restored last"
        if step % self._every and not now:
            return f"save: step {step} is not due, with every={self._every}"
        return ""

    def _require_newest(self, step: int) -> None:
        """Refuses a step that a restart would pass over for another branch."""
        steps, at, known = self.steps, self._store.at, self._store.known
        others = [] if known is None else [other for other in steps if other > known]
        newer = [other for other in steps if other >= step]
        if others:
            raise ValueError(
                f"save: another run has saved {others} in {self._store.directory} "
                f"since this one was at step {at}, and the two would mix. Close the "
                "other one, perhaps of a notebook cell that ran earlier; or call "
                "restore(state) to go on from its checkpoint"
            )
        if not newer:
            return
        come = "has restored none" if at is None else f"is at step {at} before it"
        raise ValueError(
            f"save: step {step} is not newer than the checkpoints of {newer} in "
            f"{self._store.directory}, and this run {come}: a restart would go on from "
            f"{newer[-1]}. To go back, restore(state, step=..., forget_newer=True), "
            "which moves newer ones aside; to go on, restore(state); for another run "
            "name another folder"
        )

    def _require_workers(self, state: Any) -> None:
        n = workers_in(state)
        if n != self._workers.n:
            raise ValueError(
                f"checkpoint: the state is of {n} workers and the mesh has "
                f"{self._workers.n}; give Checkpoints the mesh that is trained on"
            )


def _opened(
    directory: str | os.PathLike[str], keep: int | None, processes: tuple[int, ...]
) -> Any:
    """The store of a folder that this run alone writes into."""
    folder = writable_folder(directory)
    name = require_shared(folder, processes)
    lock = WriterLock(folder, processes)
    try:
        return Store(folder, keep, processes, lock, name)
    except BaseException:
        lock.release()
        raise
