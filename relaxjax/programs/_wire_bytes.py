"""Bytes on the wire, read from the traced update: nothing is registered, all is seen.

Counters, conditionals and periods are followed by `relaxjax.programs._period`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_transformation, require_whole
from relaxjax._core.traced._extra_args import giving
from relaxjax.programs._period import (
    expanded,
    is_by_schedule,
    period_of,
    walked_steps,
)
from relaxjax.workers import WorkerMesh, of_one_worker, workers_of

_FAR = 512  # steps, after which a period is worth looking for


def wire_bytes(
    tx: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    steps: int | None = None,
    start: int | None = None,
    extra_args: Mapping[str, Any] | None = None,
) -> int:
    """Bytes that the busiest device sends in a number of steps of `tx.update`.

    Args:
      tx: a gradient transformation.
      params: a pytree of arrays or `jax.ShapeDtypeStruct`, as for one device; or the
        shards that `relaxjax.fsdp.init` returns, of which one worker's slices count.
      mesh: a mesh, or `relaxjax.emulate(...)` (counted as if it were a mesh).
      axis_name: the data-parallel axes; None means all axes of the mesh.
      steps: number of successive steps that are counted; 1 if only `start` is given.
      start: number of steps before the first that is counted; 0 if only `steps` is.
        Without both it is the mean step of a period, such as `sync_every` steps.
      extra_args: arrays (or their shapes and dtypes) and functions that `tx.update`
        takes by name beside params, to trace it with. Those that optax's optimizers
        ask for (`value`, `grad`, `value_fn`, `obj_fn`, `grad_fn`) need not be given.

    Returns:
      Bytes in all counted steps together; of the mean step, rounded up. Where data
      decide what is sent, the most that may be; `skip_nonfinite` and `participation`
      count as in a step that they let pass.

    Raises:
      ValueError: `steps < 1` or `start < 0`; neither is given, and a schedule says when
        workers meet, or a period is too long to be seen; a loop of unknown length has a
        collective.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> params = {"w": jax.ShapeDtypeStruct((10,), jnp.float32)}
      >>> relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, relaxjax.emulate(4))
      72
    """
    require_transformation("wire_bytes", "tx", tx)
    workers = workers_of(mesh, axis_name, "wire_bytes")
    params = of_one_worker("wire_bytes", params, workers.n)
    with giving(extra_args):
        if steps is None and start is None:
            return _of_a_mean_step(tx, params, workers, extra_args)
        steps, start = (1 if steps is None else steps), start or 0
        require_whole("wire_bytes", "steps", steps)
        require_whole("wire_bytes", "start", start, 0)
        every = walked_steps(tx, params, workers, start + steps, extra_args)
        sent = [step.sent for step in expanded(every)[start:]]
        return int(np.sum(sent, axis=0).max())


def _of_a_mean_step(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None,
) -> int:
    if is_by_schedule(tx, params, workers):
        raise ValueError(
            "wire_bytes: steps=None must be a number: a schedule says when workers "
            "meet, so that there is no period whose mean step would be counted; "
            "give steps= of the whole run"
        )
    period = period_of(tx, params, workers, extra_args)
    sent = [step.sent for step in period.steps]
    total = int(np.sum(sent, axis=0).max())
    if not (total or period.closed):
        raise ValueError(
            "wire_bytes: steps=None must be a number: nothing is sent in "
            f"{len(sent)} steps, and no period is over within them; give steps= of "
            "a whole period"
        )
    return -(-total // len(sent))
