"""Checkpoints of a run in a folder: saved now and then, restored to the bit."""

import os
from collections.abc import Mapping
from typing import Any

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_whole
from relaxjax.checkpoint._files import Saved, require_shared, writable_folder
from relaxjax.checkpoint._plan import require_same_run, structure_of
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

        Raises:
          ImportError: Orbax is not installed.
          TypeError: `mesh` is not a mesh.
          ValueError: `every` or `keep` is below 1; the folder cannot be written
            to, or is not the same one for all processes.
        """
        require_whole("Checkpoints", "every", every)
        if keep is not None:
            require_whole("Checkpoints", "keep", keep)
        self._workers = workers_of(mesh, axis_name, "Checkpoints")
        self._every, self._plan = every, dict(plan or {})
        self._processes = self._workers.process_indices
        folder = writable_folder(directory)
        require_shared(folder, self._processes)
        try:
            from relaxjax.checkpoint._manager import Store
        except ImportError as error:
            raise ImportError(
                'Checkpoints: Orbax is needed: pip install "relaxjax[checkpoint]"'
            ) from error
        self._store = Store(folder, keep, self._processes)
        self._report: Resized | None = None

    @property
    def report(self) -> Resized | None:
        """How the last `restore` resized the state; None if it did not."""
        return self._report

    @property
    def steps(self) -> list[int]:
        """Steps that have a checkpoint, rising; waits for one that is being written."""
        self.wait()
        return self._store.steps()

    def is_due(self, step: int) -> bool:
        """Whether `save` would save after this number of steps."""
        return step % self._every == 0 and not self._store.has(step)

    def save(self, step: int, state: Any, *, now: bool = False) -> bool:
        """Saves if a save is due; the files are written while training goes on.

        What it needs is copied before it returns: the state may be donated.

        Args:
          step: number of steps taken.
          state: a tree. Each `jax.Array` belongs to the workers, [n, ...]; what belongs
            to the training loop is a Python number, a text or a NumPy array.
          now: save at any step, for example before a program ends.

        Returns:
          Whether it saved: a save was due, and this step had no checkpoint yet.

        Raises:
          TypeError: a leaf has another type.
          ValueError: arrays do not have an axis over the workers.
          OSError: the save before this one could not be written.
        """
        if not (self.is_due(step) or (now and not self._store.has(step))):
            return False
        self._require_workers(state)
        self.wait()
        plan = {**self._plan, **structure_of(state)}
        metadata = {
            "step": step,
            "workers": self._workers.n,
            "mesh": self._axes,
            "slices": slices_of(state),
            "plan": plan,
        }
        self._store.begin(step, snapshot(state, self._processes), metadata)
        return True

    def restore(self, state: Any, *, step: int | None = None) -> tuple[int, Any]:
        """The newest checkpoint; or 0 and `state` itself, where there is no checkpoint.

        A checkpoint of another number of workers, or of axes of other sizes, is
        resized, see `resized`, and `report` says how. Otherwise everything is as it
        was, to the bit.

        Args:
          state: a tree such as was saved, as the run begins: it says what there is and
            where arrays lie.
          step: step of the checkpoint; None for the newest.

        Returns:
          `(step, state)`: the number of steps taken, and the state after them.

        Raises:
          ValueError: a file is not as it was written; the checkpoint is of another
            relaxation or model; a state forbids the resize; `step` has no checkpoint.
        """
        self._require_workers(state)
        self._report, steps = None, self.steps
        if step is None and not steps:
            return 0, state
        if step is not None and step not in steps:
            raise ValueError(
                f"restore: there is no checkpoint of step {step} in "
                f"{self._store.directory}, only of {steps or 'no step'}"
            )
        step = steps[-1] if step is None else step
        saved = Saved(self._store.files_of(step))
        require_same_run(saved.metadata["plan"], self._plan)
        state, self._report = restored(saved, state, self._axes)
        return step, state

    def wait(self) -> None:
        """Returns when the last save is on disk.

        Raises:
          OSError: the save could not be written.
        """
        self._store.wait()

    def close(self) -> None:
        """Waits, and ends the threads.

        Raises:
          OSError: the last save could not be written.
        """
        self._store.close()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def _axes(self) -> dict[str, int]:
        """The data-parallel axes, and their sizes."""
        return dict(zip(self._workers.axis_name, self._workers.sizes, strict=True))

    def _require_workers(self, state: Any) -> None:
        n = workers_in(state)
        if n != self._workers.n:
            raise ValueError(
                f"checkpoint: the state is of {n} workers and the mesh has "
                f"{self._workers.n}; give Checkpoints the mesh that is trained on"
            )
