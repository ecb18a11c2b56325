"""Checkpoints of a run in a folder: saved now and then, restored to the bit."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import jax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_whole
from relaxjax.checkpoint._files import Saved
from relaxjax.checkpoint._merge import merged
from relaxjax.checkpoint._plan import require_same_run, structure_of
from relaxjax.checkpoint._resize import Resized, rebuilt
from relaxjax.checkpoint._snapshot import snapshot
from relaxjax.checkpoint._tree import filled, is_array, named, workers_in
from relaxjax.workers import Emulation, WorkerMesh, workers_of

_ITEM = "state"


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
        """Opens a folder, which is made if it is not there.

        Args:
          directory: of this run alone; shared by all processes.
          mesh: where the workers are.
          every: steps from one save to the next.
          keep: how many to keep, the newest; None: all.
          plan: what the run is, as of `plan_of`; None: only the trees are compared.
          axis_name: the data-parallel axes; None means all axes of the mesh.

        Raises:
          ImportError: Orbax is not installed.
          TypeError: `mesh` is not one.
          ValueError: `every` or `keep` below 1, a folder that cannot be written.
        """
        require_whole("Checkpoints", "every", every)
        if keep is not None:
            require_whole("Checkpoints", "keep", keep)
        self._workers = workers_of(mesh, axis_name, "Checkpoints")
        self._every, self._plan = every, dict(plan or {})
        self._directory = _folder(directory)
        self._processes = _processes_of(self._workers)
        everyone = len(self._processes) == jax.process_count()
        self._manager = _orbax().manager_of(
            self._directory, keep, self._processes, everyone
        )
        self._report: Resized | None = None
        # Orbax starts a few threads, one after the other, before its save returns.
        # Processes meet in there, so that only one alone may leave it to a thread.
        alone = len(self._processes) == 1
        self._thread = ThreadPoolExecutor(1) if alone else None
        self._under_way: Future[bool] | None = None
        self._newest = max(self._manager.all_steps(), default=-1)

    @property
    def report(self) -> Resized | None:
        """What the last `restore` did to fit another number of workers, if it did."""
        return self._report

    @property
    def steps(self) -> list[int]:
        """The steps there are checkpoints of, rising; waits for one being written."""
        self.wait()
        return sorted(self._manager.all_steps())

    def is_due(self, step: int) -> bool:
        """Whether `save` would save after so many steps."""
        return step % self._every == 0 and self._is_new(step)

    def save(self, step: int, state: Any, *, now: bool = False) -> bool:
        """Saves, if it is time to. The writing goes on while training does.

        What it needs is copied before it returns: the state may be donated.

        Args:
          step: number of steps taken.
          state: a tree. Each `jax.Array` is of all workers, [n, ...]; what is of the
            training loop is a Python number, a text or a NumPy array.
          now: save at any step, as before a program ends.

        Returns:
          Whether it was time to, and there was none of this step yet.

        Raises:
          TypeError: a leaf of another type.
          ValueError: arrays without an axis over the workers.
          OSError: the save before this one could not be written.
        """
        if not (self.is_due(step) or (now and self._is_new(step))):
            return False
        self._require_workers(state)
        self.wait()
        told = {
            "step": step,
            "workers": self._workers.n,
            "plan": {**self._plan, **structure_of(state)},
        }
        found = snapshot(state, self._processes)
        self._begin(step, _orbax().Write(found, told))
        return True

    def restore(self, state: Any, *, step: int | None = None) -> tuple[int, Any]:
        """The newest checkpoint; or 0 and what was given, where there is none.

        A checkpoint of another number of workers is resized, as of `resized`, and
        `report` says how. Otherwise all is as it was, to the bit.

        Args:
          state: a tree such as was saved, as the run begins: it says what there is and
            where arrays lie.
          step: of which step; None: the newest.

        Returns:
          `(step, state)`: the number of steps taken, and the state after them.

        Raises:
          ValueError: a file that is not as it was written; a checkpoint of another
            relaxation or model; a resize that a state forbids; no checkpoint of `step`.
        """
        self._require_workers(state)
        self.wait()
        self._report = None
        if step is None:
            step = self._manager.latest_step()
        elif step not in self.steps:
            raise ValueError(
                f"restore: there is no checkpoint of step {step} in {self._directory}; "
                f"there are {self.steps or 'none at all'}"
            )
        if step is None:
            return 0, state
        saved = Saved(self._directory / str(step) / _ITEM)
        require_same_run(saved.told["plan"], self._plan)
        return step, self._read(saved, state)

    def wait(self) -> None:
        """Returns when the last save is on disk.

        Raises:
          OSError: it could not be written.
        """
        under_way, self._under_way = self._under_way, None
        if under_way:
            under_way.result()
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, and ends the threads.

        Raises:
          OSError: the last save could not be written.
        """
        try:
            self.wait()
        finally:
            if self._thread:
                self._thread.shutdown()
            self._manager.close()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _is_new(self, step: int) -> bool:
        return step != self._newest and step not in self._manager.all_steps()

    def _begin(self, step: int, item: Any) -> None:
        """Begins to write what is already copied; nothing else is under way."""
        self._newest = step
        args = _orbax().ocp.args.Composite(**{_ITEM: item})
        if self._thread is None:
            self._manager.save(step, args=args, force=True)
            return
        self._under_way = self._thread.submit(
            self._manager.save, step, args=args, force=True
        )

    def _read(self, saved: Saved, like: Any) -> Any:
        before, now = saved.told["workers"], self._workers.n
        if before != now:
            found = merged(saved, like, now)
            self._report = Resized(before, now, found.rules)
            return rebuilt(found, like, saved.loop)
        _require_same_tree(saved, like)
        require_same_run(saved.told["plan"], structure_of(like))
        rows = {k: lambda a, b, k=k: saved.rows(k, a, b) for k in saved}
        return filled(like, rows, saved.loop)

    def _require_workers(self, state: Any) -> None:
        n = workers_in(state)
        if n != self._workers.n:
            raise ValueError(
                f"checkpoint: the state is of {n} workers and the mesh has "
                f"{self._workers.n}; give Checkpoints the mesh that is trained on"
            )


def _require_same_tree(saved: Saved, like: Any) -> None:
    """Names the first leaf in which a checkpoint and a tree differ."""
    leaves = named(like)
    now = {k: (str(x.dtype), x.shape[1:]) for k, x in leaves.items() if is_array(x)}
    values = {k for k, x in leaves.items() if not is_array(x)}
    for name in {**saved.kinds, **now}:
        was, is_now = saved.kinds.get(name), now.get(name)
        if was != is_now:
            texts = (f"{x[0]}{list(x[1])}" if x else "absent" for x in (was, is_now))
            raise ValueError(
                "restore: the checkpoint is of another relaxation or model: {!r} was "
                "{} and is {}. Restore it with what it was saved with, or save this "
                "run in another folder".format(name, *texts)
            )
    for name in values ^ set(saved.loop):
        raise ValueError(
            f"restore: the checkpoint is of another tree: {name!r} is "
            + ("not in it" if name in values else "in it, and not in the one given")
        )


def _folder(directory: str | os.PathLike[str]) -> Path:
    path = Path(directory).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"Checkpoints: cannot make the folder {path} ({error.strerror}); name one "
            "that you may write to"
        ) from error
    if not os.access(path, os.W_OK):
        raise ValueError(
            f"Checkpoints: the folder {path} cannot be written to; name another, or "
            "change its permissions"
        )
    return path


def _processes_of(workers: WorkerMesh) -> tuple[int, ...]:
    if isinstance(workers.mesh, Emulation):
        return (jax.process_index(),)
    return tuple(sorted({d.process_index for d in workers.mesh.devices.flat}))


def _orbax() -> Any:
    try:
        from relaxjax.checkpoint import _manager
    except ImportError as error:
        raise ImportError(
            'Checkpoints: Orbax is needed: pip install "relaxjax[checkpoint]"'
        ) from error
    return _manager
