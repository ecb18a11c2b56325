"""Turns a train step written for one device into one that all workers take.

    state_i, metrics_i <- step(state_i, batch_i)          on every worker i at once

Each worker sees its own state, without a worker axis, and its share of the batch; the
transformation inside the step says what they exchange.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import is_any_traced
from relaxjax._core._phase_watch import Phases
from relaxjax.workers._batch_agreement import Batches
from relaxjax.workers._batches import place_batch, placed
from relaxjax.workers._mesh import Emulation, WorkerMesh
from relaxjax.workers._metrics import mean_over_workers
from relaxjax.workers._step_arguments import require_state
from relaxjax.workers._step_programs import StepPrograms
from relaxjax.workers._to_workers import workers_of

# Steps that may be under way at once on emulated CPU devices. More than about 32
# programs in flight starve the rendezvous of XLA's CPU collectives (jaxlib 0.10), and
# each step is two programs.
_IN_FLIGHT = 8


class DataParallelStep:
    """A jitted step over all workers; made by `data_parallel`.

    Call it like the step itself, with stacked state and the whole batch.
    """

    def __init__(self, step: Callable[..., Any], workers: WorkerMesh, donate: bool):
        self._workers = workers
        self._programs = StepPrograms(step, workers, donate)
        self._mean = jax.jit(mean_over_workers)
        self._bounded = isinstance(workers.mesh, Mesh) and (
            workers.mesh.devices.flat[0].platform == "cpu" and workers.mesh.size > 1
        )
        self._under_way: deque[Any] = deque()
        self._phases, self._batches = Phases(), Batches(workers)

    @property
    def mesh(self) -> Mesh | Emulation:
        """The mesh that the workers live on."""
        return self._workers.mesh

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Takes one step: `(*state, batch) -> (*state, metrics)`."""
        with self._phases.lock:
            state, batch = self._checked(args)
            state, metrics = self._programs(self._phases.advanced(state), batch)
            self._phases.returned(state, several=bool(self._programs.looped))
            if self._bounded and not is_any_traced((state, metrics)):
                self._wait(state, metrics)
        return (*state, self._mean(metrics))

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """Lowers the program of one step for these arguments, without running it.

        They may be arrays, as for a call, or `jax.ShapeDtypeStruct`, those of a batch
        with the rows of all processes. The compiled program takes the states in one
        tuple, then the batch. For one that is called like the step, lower
        `jax.jit(step)`. It holds all phases that are to come, and counts choose; of
        states that `relaxjax.advance_phases` has seen, the current phase alone.
        """
        state, batch = self._checked(args)
        return self._programs.lower(placed(state, self._workers), batch)

    def _checked(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        if len(args) < 2:
            raise TypeError(
                f"data_parallel: the step takes states, then a batch; got {len(args)}"
            )
        *state, batch = args
        if not self._batches.count:
            require_state(state, self._workers)
        if is_any_traced((state, batch)):  # inside a trace nobody could answer
            return tuple(state), place_batch(batch, self._workers)
        return tuple(state), self._batches.taken(batch)

    def _wait(self, state: Any, metrics: Any) -> None:
        """Bounds the number of steps under way."""
        if not jax.tree.leaves(metrics):
            # The state may be donated to the next step: nothing can wait for it later.
            jax.block_until_ready(state)
            return
        self._under_way.append(metrics)
        if len(self._under_way) >= _IN_FLIGHT:
            jax.block_until_ready(self._under_way.popleft())


def data_parallel(
    step: Callable[..., Any],
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    donate: bool = False,
) -> DataParallelStep:
    """Makes a train step that is written for one device run on every worker.

    Args:
      step: `step(*state, batch) -> (*state, metrics)`. All arguments but the last are
        worker state and come back in the same order; metrics are a pytree of numbers.
      mesh: a `jax.sharding.Mesh`, or `relaxjax.emulate(...)`.
      axis_name: the data-parallel axes, (outer, inner) if two; None means all axes of
        the mesh. Other axes are left to the compiler.
      donate: let the new state take the memory of the old state, which may then not be
        used again.

    Returns:
      A jitted function of the same arguments: state as `relaxjax.init` and
      `relaxjax.to_workers` make it, with a leading worker axis, and a batch whose
      leading axis is divided among the workers. With several processes, each gives
      its own rows: an array of NumPy, or a `jax.Array` that lies on this process alone.
      A `jax.Array` over all processes is the whole batch.
      Inside a `jax.jit` or `jax.lax.scan` of your own, each step holds all phases, and
      counts choose.
      It returns the new state, and the mean of the metrics over the workers in float32;
      if the metrics are a mapping with a key `"weight"`, the mean of the others is
      weighted by it (a weight of zero drops that worker, whatever it computed), and
      the weights themselves are summed.

    Raises:
      TypeError: `mesh` is not a mesh; the step returns something else.
      ValueError: unknown axis; in a call: a batch without rows, or one that the workers
        cannot share equally, state without a worker axis, state that changes its shapes
        or dtypes in the step.

    Warns:
      UserWarning: in the first call, and in the first of each phase; of phases and keys
        not inside a `jax.jit` of your own. A worker's own loss, given to the optimizer
        as `value=`, or its own batch, key or index by another way past all relaxations,
        parts the models; a reducer is given gradients that have met; updates of models
        are changed; an optimizer's state is made in the step, or stays, or the params
        do; nothing brings the workers together; all processes give the same rows.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.5))
      >>> def train_step(w, opt_state, batch):
      ...     loss, grad = jax.value_and_grad(lambda w: ((w - batch) ** 2).mean())(w)
      ...     updates, opt_state = tx.update(grad, opt_state, w)
      ...     return optax.apply_updates(w, updates), opt_state, {"loss": loss}
      >>> mesh = relaxjax.emulate(4)
      >>> w, opt_state = relaxjax.init(tx, jnp.float32(0), mesh)
      >>> step = relaxjax.data_parallel(train_step, mesh)
      >>> w, opt_state, metrics = step(w, opt_state, jnp.arange(8.0))
      >>> print(w, metrics["loss"])
      [3.5 3.5 3.5 3.5] 17.5
    """
    return DataParallelStep(step, workers_of(mesh, axis_name, "data_parallel"), donate)
