"""Bytes on the wire, read from the traced update: nothing is registered, all is seen.

The programs of `tx.init` and `tx.update` are walked (`relaxjax.programs._jaxpr`),
through chains, masks, wrappers and loops, with the state's counters of each step. What
a collective sends is stated in `relaxjax.programs._jaxpr_bytes`.
"""

import functools
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
import optax
from jax.extend import core
from jax.sharding import AbstractMesh, AxisType

from relaxjax._core._axis import AxisName
from relaxjax._core._phases import clocks_of, set_phases
from relaxjax.programs._jaxpr import WalkContext, walk
from relaxjax.workers import workers_of


def wire_bytes(
    tx: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    steps: int = 1,
    start: int = 0,
) -> int:
    """Bytes that the busiest device sends in a number of steps of `tx.update`.

    Args:
      tx: a gradient transformation.
      params: a pytree of arrays or `jax.ShapeDtypeStruct`, as for one device.
      mesh: a mesh, or `relaxjax.emulate(...)` (counted as if it were a mesh).
      axis_name: the data-parallel axes; None means all axes of the mesh.
      steps: number of successive steps that are counted.
      start: number of steps before the first that is counted.

    Returns:
      Bytes in all counted steps together.

    Raises:
      ValueError: `steps < 1` or `start < 0`; a loop of unknown length has a collective.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> params = {"w": jax.ShapeDtypeStruct((10,), jnp.float32)}
      >>> relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, relaxjax.emulate(4))
      72
    """
    if steps < 1 or start < 0:
        raise ValueError(
            f"wire_bytes: steps={steps} must be 1 or more and start={start} 0 or more"
        )
    workers = workers_of(mesh, axis_name, "wire_bytes")
    sizes = {name: workers.mesh.shape[name] for name in workers.axis_name}
    spec = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(jax.typeof(x).shape, jax.typeof(x).dtype), params
    )
    axes = list(sizes.items())

    def next_state(updates, state, params):
        return tx.update(updates, state, params)[1]

    @functools.cache
    def program(phases: Any) -> core.ClosedJaxpr:
        with _as_on_devices(workers.mesh.shape, workers.axis_name):
            now = phases.unflatten(jax.tree.leaves(state))
            return jax.make_jaxpr(next_state, axis_env=axes)(spec, now, spec)

    with _as_on_devices(workers.mesh.shape, workers.axis_name):
        first, state = jax.make_jaxpr(tx.init, axis_env=axes, return_shape=True)(spec)
    context = WalkContext(sizes, {}, {})
    known = walk(first, [None] * len(first.in_avals), context).known
    unknown = [None] * len(jax.tree.leaves(spec))
    total = np.zeros(tuple(sizes.values()), np.int64)
    phases = jax.tree.structure(state)
    for step in range(start + steps):
        phases = _advanced(phases, known)
        inputs = [*unknown, *known, *unknown]
        later = step + 1 < start + steps  # the last state is looked at by no step
        walked = walk(program(phases), inputs, context, wanted=later)
        known = walked.known
        if step >= start:
            total += walked.sent
    return int(total.max())


def _advanced(phases: Any, known: list[Any]) -> Any:
    """The structure of a state, with its clocks in the phases of their counts."""
    places = [one.count for one in clocks_of(phases.unflatten(range(len(known))))]
    counts = [int(known[place]) for place in places]
    return jax.tree.structure(set_phases(phases.unflatten(range(len(known))), counts))


def _as_on_devices(
    sizes: Mapping[str, int], workers: Collection[str]
) -> AbstractContextManager[Any]:
    """A context in which tracing takes the workers' axes for axes of devices.

    The other axes, of these sizes, are left to the compiler.
    """
    kinds = (AxisType.Manual if name in workers else AxisType.Auto for name in sizes)
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=tuple(kinds))
    return jax.sharding.use_abstract_mesh(mesh)
