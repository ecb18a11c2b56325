"""The programs of a step over all workers: one that may exchange, and one that cannot.

The second is for steps in which nothing is due, on devices whose host would wait in
each step to know that (`relaxjax._core.traced._silence`).
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

from relaxjax._core._phases import clocks_of, hosted, ticks_in_a_loop
from relaxjax._core.traced._marks import heard_updates
from relaxjax._core.traced._silence import Silence, hearing
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers._own_keys import own_keys, warn_of_own_keys
from relaxjax.workers._own_value import shapes_of_one, warn_of_own_value
from relaxjax.workers._step_arguments import checked, require_worker_axis
from relaxjax.workers._worker_axis import per_worker


class StepPrograms:
    """Takes `(state, batch)` with a worker axis to `(state, metrics)`.

    Attributes:
      whole: the jitted step with all that may be due in it. It returns also in how many
        steps nothing is, if that is of use.
      silent: the jitted step where nothing is due.
      looped: whether a loop in the step takes several steps of a clock; None until a
        clock is seen that has phases to come.
    """

    def __init__(self, step: Callable[..., Any], workers: WorkerMesh, donate: bool):
        self._step, self._workers = step, workers
        self._silence = Silence() if host_is_asked(workers) else None
        self._is_first, self._relaxes, self._takes_value = True, False, False
        self.looped: bool | None = None
        donated = (0,) if donate else ()
        self.whole = jax.jit(self._whole, donate_argnums=donated)
        self.silent = jax.jit(self._nothing_due, donate_argnums=donated)

    def __call__(self, state: tuple[Any, ...], batch: Any) -> tuple[Any, Any]:
        """Takes a step by one of the two; looks at the first one's numbers."""
        first, self._is_first = self._is_first, False
        if not first:
            return self._step_of(state, batch)
        shapes = shapes_of_one(state, batch, self._workers)
        keys = own_keys(state, self._workers)
        out = self._step_of(state, batch)
        if self._takes_value:
            warn_of_own_value(self._step, shapes, self._workers)
        if keys and self._relaxes:
            warn_of_own_keys(self._step, shapes, keys, self._workers)
        return out

    def _step_of(self, state: tuple[Any, ...], batch: Any) -> tuple[Any, Any]:
        if self._silence is None:
            return self.whole(state, batch)[:2]
        silent = self._silence.holds(state)
        state, metrics, left = (self.silent if silent else self.whole)(state, batch)
        self._silence.returned(state, left, silent=silent)
        return state, metrics

    def _whole(self, state: tuple[Any, ...], batch: Any) -> tuple[Any, Any, Any]:
        return self._everywhere(state, batch, silent=False)

    def _nothing_due(self, state: tuple[Any, ...], batch: Any) -> tuple[Any, Any, None]:
        return *self._everywhere(state, batch, silent=True)[:2], None

    def _everywhere(self, state: tuple[Any, ...], batch: Any, *, silent: bool) -> Any:
        require_worker_axis(state, self._workers.n)  # in the trace: no step pays for it
        step = checked(self._step)

        def heard(*args: Any) -> tuple[Any, Any, Any]:
            with hearing(silent=silent) as announced, heard_updates() as updates:
                out = step(*args)
            self._relaxes |= bool(updates)
            self._takes_value |= any(value is not None for value, _ in updates)
            return *out, announced.left() if self._silence else None

        one_worker = per_worker(heard, self._workers, batch=True)
        # The host sets phases between the steps, in `DataParallelStep.__call__`; in a
        # loop inside of the step, the counts choose.
        by_host = not self._loops(one_worker, state, batch)
        state, metrics, left = one_worker(*hosted(state, by_host), batch)
        return hosted(state, by_host=False), metrics, left

    def _loops(self, step: Callable[..., Any], state: Any, batch: Any) -> bool:
        """Whether a loop in the step takes several steps; traced once, to see it."""
        to_come = any(clock.phase < len(clock.ends) for clock in clocks_of(state))
        if self.looped is None and to_come:
            traced = jax.make_jaxpr(step)(*hosted(state), batch)
            self.looped = ticks_in_a_loop(traced.jaxpr)
        return bool(self.looped)


def host_is_asked(workers: WorkerMesh) -> bool:
    """Whether the host waits for the device to know if something is due."""
    mesh = workers.mesh
    first = mesh.devices.flat[0] if isinstance(mesh, Mesh) else jax.devices()[0]
    return first.platform != "cpu"
