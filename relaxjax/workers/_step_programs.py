"""The programs of a step over all workers: one that may exchange, and one that cannot.

The second is for steps in which nothing is due, on devices whose host would wait in
each step to know that (`relaxjax._core.traced._silence`).
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

from relaxjax._core._checks import is_any_traced
from relaxjax._core._phases import (
    clocks_of,
    hosted,
    making,
    renewed,
    timed,
)
from relaxjax._core.foreign._memory import give_back
from relaxjax._core.traced._silence import Silence, hearing
from relaxjax._core.traced._ticks import ticks_often
from relaxjax.workers._batches import moved
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers._step_arguments import (
    checked,
    require_untyped,
    require_worker_axis,
)
from relaxjax.workers._worker_axis import per_worker
from relaxjax.workers.followed._alone import warn_of_alone
from relaxjax.workers.followed._dependence import Own
from relaxjax.workers.followed._looked import Looked, looked_at
from relaxjax.workers.followed._own_keys import own_keys
from relaxjax.workers.followed._warned import warn_of_step


class StepPrograms:
    """Takes `(state, batch)` with a worker axis to `(state, metrics)`.

    Programs are followed once they have run (`relaxjax.workers.followed`).

    Attributes:
      whole: the jitted step with all that may be due in it. It returns also in how many
        steps nothing is, if that is of use.
      silent: the jitted step where nothing is due.
      looped: whether the step takes several steps of a clock; None until a clock of
        several phases is seen.
    """

    def __init__(self, step: Callable[..., Any], workers: WorkerMesh, donate: bool):
        self._step, self._workers = step, workers
        self._silence = Silence() if host_is_asked(workers) else None
        self._is_first, self._keys = True, dict[int, Own]()
        self._found: deque[Looked] = deque(maxlen=1)  # traced since the last step
        self.looped: bool | None = None
        self._renews = False  # whether state is made anew in the step
        donated = (0,) if donate else ()
        self.whole = jax.jit(self._whole, static_argnums=2, donate_argnums=donated)
        self.silent = jax.jit(self._nothing_due, donate_argnums=donated)

    def __call__(self, state: tuple[Any, ...], batch: Any) -> tuple[Any, Any]:
        """Takes a step by one of the two.

        In a traced function no host does anything between the steps.
        """
        self._keys = {}
        if is_any_traced(state):
            out = self.whole(state, batch, False)[:2]
        else:
            first, self._is_first = self._is_first, False
            self._keys = own_keys(state, self._workers) if first else {}
            try:
                out = self._step_of(state, batch)
            except (ValueError, AssertionError) as error:  # JAX's, before it runs
                out = self._step_of(moved(state, self._workers, error), batch)
        while self._found:  # a new program: the first, or that of a phase
            warn_of_step(self._found.pop(), self._keys, self._workers)
            give_back(out)
        return out

    def lower(self, state: tuple[Any, ...], batch: Any) -> jax.stages.Lowered:
        """Lowers the whole step, of one phase alone where a host sets phases."""
        by_host = any(clock.hosted for clock in clocks_of(state))
        return self.whole.lower(state, batch, by_host)

    def _step_of(self, state: tuple[Any, ...], batch: Any) -> tuple[Any, Any]:
        if self._silence is None:
            return self.whole(state, batch)[:2]
        silent = self._silence.holds(state)
        state, metrics, left = (self.silent if silent else self.whole)(state, batch)
        self._silence.returned(state, left, silent=silent)
        return state, metrics

    def _whole(
        self, state: tuple[Any, ...], batch: Any, by_host: bool = True
    ) -> tuple[Any, Any, Any]:
        return self._everywhere(state, batch, by_host, silent=False)

    def _nothing_due(self, state: tuple[Any, ...], batch: Any) -> tuple[Any, Any, None]:
        return *self._everywhere(state, batch, silent=True)[:2], None

    def _everywhere(
        self, state: tuple[Any, ...], batch: Any, by_host: bool = True, *, silent: bool
    ) -> Any:
        require_worker_axis(state, self._workers.n)  # in the trace: no step pays for it
        require_untyped(self._workers)
        step = checked(self._step)

        def heard(*args: Any) -> tuple[Any, Any, Any]:
            with hearing(silent=silent) as announced:
                out = step(*args)
            return *out, announced.left() if self._silence else None

        # Of a program in which nothing is due, nothing can be said.
        followed = heard if silent else looked_at(heard, self._hear)
        one_worker = per_worker(followed, self._workers, batch=True)
        # The host sets phases between the steps, in `DataParallelStep.__call__`. Counts
        # choose if a step has several updates, if state is made anew in it, or if it is
        # in a traced function.
        self._look_at(one_worker, state, batch)
        by_host = by_host and not self.looped
        state = renewed(state) if self._renews else hosted(state, by_host)
        state, metrics, left = one_worker(*state, batch)
        return hosted(state, by_host=False), metrics, left

    def _hear(self, found: Looked) -> None:
        """Keeps what is to be followed; what would hang is told before it runs."""
        if not warn_of_alone(found, self._keys, self._workers):
            self._found.append(found)

    def _look_at(self, step: Callable[..., Any], state: Any, batch: Any) -> None:
        """Traces a step with phases once, to see who is to choose them."""
        if self.looped is not None or not any(c.ends for c in clocks_of(state)):
            return
        with making() as made:
            program = timed(lambda s: jax.make_jaxpr(step)(*s, batch), state)
        self.looped, self._renews = ticks_often(program.jaxpr), bool(made)


def host_is_asked(workers: WorkerMesh) -> bool:
    """Whether the host waits for the device to know if something is due."""
    mesh = workers.mesh
    first = mesh.devices.flat[0] if isinstance(mesh, Mesh) else jax.devices()[0]
    return first.platform != "cpu"
