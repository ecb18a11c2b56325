"""Turns a train step written as for one device into one that all workers take.

    state_i, metrics_i <- step(state_i, batch_i)          on every worker i at once

Each worker sees its own state, without a worker axis, and its share of the batch; what
they exchange is up to the transformation inside the step.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from relaxjax._core._axis import AxisName
from relaxjax._core._dtypes import wide
from relaxjax._core._phases import Phases
from relaxjax._core._tree import difference, dtype_and_shape, layout_of, leaf_names
from relaxjax.workers._mesh import Emulation, WorkerMesh, workers_of
from relaxjax.workers._startup_agreement import require_equal_processes
from relaxjax.workers._worker_axis import per_worker

# Steps that may be under way at once on emulated CPU devices. More than about 32
# programs in flight starve the rendezvous of XLA's CPU collectives (jaxlib 0.10), and
# each step is two programs.
_IN_FLIGHT = 8


class DataParallelStep:
    """A jitted step over all workers; made by `data_parallel`.

    Call it as the step itself, with stacked state and the whole batch.
    """

    def __init__(self, step: Callable[..., Any], workers: WorkerMesh, donate: bool):
        self._step = step
        self._workers = workers
        self._mapped = jax.jit(self._all_workers, donate_argnums=(0,) if donate else ())
        self._mean = jax.jit(_mean_over_workers)
        self._bounded = isinstance(workers.mesh, Mesh) and (
            workers.mesh.devices.flat[0].platform == "cpu" and workers.mesh.size > 1
        )
        self._under_way: deque[Any] = deque()
        self._phases = Phases()
        self._agreed = workers.processes == 1

    @property
    def mesh(self) -> Mesh | Emulation:
        """Where the workers live."""
        return self._workers.mesh

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Takes one step: `(*state, batch) -> (*state, metrics)`."""
        state, batch = self._checked(args)
        state, metrics = self._mapped(self._phases.advanced(state), batch)
        self._phases.returned(state)
        if self._bounded:
            self._wait(state, metrics)
        return (*state, self._mean(metrics))

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """Lowers the program of one step for these arguments, without running it.

        They may be arrays or `jax.ShapeDtypeStruct`, shaped as for a call.
        """
        state, batch = self._checked(args)
        return self._mapped.lower(_placed(state, self._workers), batch)

    def _checked(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        if len(args) < 2:
            raise TypeError(
                f"data_parallel: the step takes its state and then a batch, at least "
                f"two arguments; got {len(args)}"
            )
        *state, batch = args
        self._require_agreement(batch)
        _require_worker_axis(state, self._workers.n)
        return tuple(state), _place_batch(batch, self._workers)

    def _require_agreement(self, batch: Any) -> None:
        """Before the first step, processes compare what they feed."""
        if not self._agreed:
            names = zip(leaf_names(batch), jax.tree.leaves(batch), strict=True)
            require_equal_processes(
                "data_parallel",
                {f"batch leaf {k!r}": dtype_and_shape(x) for k, x in names},
            )
            self._agreed = True

    def _all_workers(self, state: tuple[Any, ...], batch: Any) -> tuple[Any, Any]:
        def one_worker(*args):
            out = self._step(*args)
            if not isinstance(out, tuple) or len(out) != len(args):
                got = f"{len(out)} values" if isinstance(out, tuple) else type(out)
                raise TypeError(
                    f"data_parallel: the step takes {len(args) - 1} states and a "
                    "batch, so it must return a tuple of the same states and then "
                    f"metrics ({len(args)} values); it returned {got}"
                )
            _require_stable(args[:-1], out[:-1])
            return out[:-1], out[-1]

        return per_worker(one_worker, self._workers, batch=True)(*state, batch)

    def _wait(self, state: Any, metrics: Any) -> None:
        """Keeps the number of steps under way within bounds."""
        if not jax.tree.leaves(metrics):
            # State may be donated to the next step: it cannot be waited for later.
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
    """Makes a train step, written as for one device, run on every worker.

    Args:
      step: `step(*state, batch) -> (*state, metrics)`. All arguments but the last are
        worker state and come back in the same order; metrics are a pytree of numbers.
      mesh: a `jax.sharding.Mesh`, or `relaxjax.emulate(...)`.
      axis_name: the data-parallel axes, (outer, inner) if two; None means all axes of
        the mesh. Other axes are left to the compiler.
      donate: let the new state take the old state's memory; the old may then not be
        used again.

    Returns:
      A jitted function of the same arguments: state as `relaxjax.init` and
      `relaxjax.to_workers` make it, with a leading worker axis, and a batch whose
      leading axis is divided among the workers (host arrays are this process's rows).
      It returns the new state, and the metrics' mean over the workers in float32; if
      the metrics are a mapping with a key `"weight"`, the mean of the others is
      weighted by it (a weight of zero drops that worker, whatever it computed), and
      the weights themselves are summed.

    Raises:
      TypeError: `mesh` is not one; the step returns something else.
      ValueError: unknown axis; in a call: a batch that the workers cannot share
        equally, state without a worker axis, state that the step changed in kind.

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


def _mean_over_workers(metrics: Any) -> Any:
    """Means over the leading axis, weighted by `metrics["weight"]` if there is one."""

    def widen(x):
        return x.astype(wide(x.dtype))

    if not (isinstance(metrics, Mapping) and "weight" in metrics):
        return jax.tree.map(lambda x: jnp.mean(widen(x), axis=0), metrics)
    weight = widen(metrics["weight"])
    total = jnp.sum(weight, axis=0)

    def weighted(x):
        w = weight.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.sum(jnp.where(w == 0, 0, w * widen(x)), axis=0) / total

    rest = {k: jax.tree.map(weighted, v) for k, v in metrics.items() if k != "weight"}
    return {**rest, "weight": total}


def _place_batch(batch: Any, workers: WorkerMesh) -> Any:
    def put(name, leaf):
        shape = jnp.shape(leaf)
        if not shape:
            raise ValueError(
                f"data_parallel: batch leaf {name!r} has no axis to divide among "
                f"{workers.n} workers; pass it as state (relaxjax.to_workers), or "
                "close over it"
            )
        abstract = isinstance(leaf, jax.ShapeDtypeStruct)
        host = not (abstract or isinstance(leaf, jax.Array))
        rows = shape[0] * (workers.processes if host else 1)
        if rows % workers.n:
            raise ValueError(
                f"data_parallel: batch leaf {name!r} has {rows} rows, which do not "
                f"divide among {workers.n} workers: make it a multiple of {workers.n} "
                "(drop or repeat rows)"
            )
        if host and isinstance(workers.mesh, Mesh):
            dtype = jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)
            leaf = np.asarray(leaf, dtype)
            return jax.make_array_from_process_local_data(workers.sharding(), leaf)
        return _placed(leaf, workers) if abstract else leaf

    leaves, tree = jax.tree.flatten(batch)
    names = leaf_names(batch)
    return jax.tree.unflatten(
        tree, [put(*pair) for pair in zip(names, leaves, strict=True)]
    )


def _placed(tree: Any, workers: WorkerMesh) -> Any:
    """Says of abstract arrays that say nothing that they lie where the workers are."""

    def put(leaf):
        bare = isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is None
        if not bare or not isinstance(workers.mesh, Mesh):
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=workers.sharding())

    return jax.tree.map(put, tree)


def _require_worker_axis(state: list[Any], n: int) -> None:
    for path, leaf in jax.tree.leaves_with_path(state):
        shape = jnp.shape(leaf)
        if shape[:1] != (n,):
            name = jax.tree_util.keystr(path[1:], simple=True, separator="/")
            raise ValueError(
                f"data_parallel: leaf {name!r} of state argument {path[0].idx} has "
                f"shape {shape}, without a leading axis of {n} workers. Params and "
                "optimizer state come from relaxjax.init(tx, params, mesh), everything "
                "else from relaxjax.to_workers(tree, mesh); with the same mesh as here"
            )


def _require_stable(before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    """State must come back as it went in, or the next call would compile anew."""
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        wrong = difference(layout_of(old), layout_of(new), dtypes=True)
        if wrong is None and jax.tree.structure(old) != jax.tree.structure(new):
            wrong = f"{jax.tree.structure(old)} became {jax.tree.structure(new)}"
        if wrong:
            raise ValueError(
                f"data_parallel: the step changed state argument {i}: {wrong}. It must "
                "return each state with the structure, shapes and dtypes it was given"
            )
