"""Bytes on the wire, read from the traced update: nothing is registered, all is seen.

The programs of `tx.init` and `tx.update` are walked (`relaxjax.programs._jaxpr`),
through chains, masks, wrappers and loops, with the state's counters of each step. What
a collective sends is stated in `relaxjax.programs._jaxpr_bytes`.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend import core

from relaxjax._core._axis import AxisName
from relaxjax._core._jaxprs import shapes_of
from relaxjax._core._phases import clocks_of, set_phases
from relaxjax._core._sharding import as_on_devices
from relaxjax.programs._jaxpr import WalkContext, looked_at, walk
from relaxjax.programs._jaxpr_bytes import shape_of
from relaxjax.workers import WorkerMesh, is_silent, workers_of

_ALIKE, _MOST = 8, 4096  # steps that show a period of one; that are looked at


def wire_bytes(
    tx: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    steps: int | None = None,
    start: int | None = None,
) -> int:
    """Bytes that the busiest device sends in a number of steps of `tx.update`.

    Args:
      tx: a gradient transformation.
      params: a pytree of arrays or `jax.ShapeDtypeStruct`, as for one device.
      mesh: a mesh, or `relaxjax.emulate(...)` (counted as if it were a mesh).
      axis_name: the data-parallel axes; None means all axes of the mesh.
      steps: number of successive steps that are counted; 1 if only `start` is given.
      start: number of steps before the first that is counted; 0 if only `steps` is.
        Without both it is the mean step of a period, such as `sync_every` steps.

    Returns:
      Bytes in all counted steps together; of the mean step, rounded up.

    Raises:
      ValueError: `steps < 1` or `start < 0`; a loop of unknown length has a collective.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> params = {"w": jax.ShapeDtypeStruct((10,), jnp.float32)}
      >>> relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, relaxjax.emulate(4))
      72
    """
    workers = workers_of(mesh, axis_name, "wire_bytes")
    if steps is None and start is None:
        sent = bytes_in_a_period(tx, params, workers)
        return -(-int(np.sum(sent, axis=0).max()) // len(sent))
    steps, start = (1 if steps is None else steps), start or 0
    if steps < 1 or start < 0:
        raise ValueError(
            f"wire_bytes: steps={steps} must be 1 or more and start={start} 0 or more"
        )
    walked = itertools.islice(_steps(tx, params, workers, start + steps), start, None)
    return int(np.sum([sent for sent, _ in walked], axis=0).max())


def bytes_in_a_period(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh
) -> list[np.ndarray]:
    """Each device's bytes in the steps after which sending begins anew.

    A period ends where the counters that have turned are back where they began; one
    more must send the same, as other counters may still be on their way. Where none
    turns one step is like another, or, for methods whose rounds grow, the mean is over
    `_MOST` steps.
    """
    most = 1 if workers.n == 1 else _MOST  # one worker sends nothing
    walked = itertools.islice(_steps(tx, params, workers, None), most)
    first, before = {}, {}
    turned: set[int] = set()
    sent: list[np.ndarray] = []
    period = 0
    silent = functools.cache(functools.partial(is_silent, tx, params, workers))
    for step, (now, counters) in enumerate(walked):
        turned |= {i for i, x in counters.items() if x < before.get(i, x)}
        back = turned and all(counters[i] == first[i] for i in turned)
        if back and not period:
            period = step
        if period and step == 2 * period:
            if np.array_equal(sent[:period], sent[period:]):
                break
            period = step if back else 0
        alike = step >= _ALIKE and np.ptp(sent[-_ALIKE:], axis=0).max() == 0
        if alike and not turned and (sent[-1].any() or silent()):
            return sent[-1:]
        if step and not counters:
            period = 1
            break
        first = first or counters
        before = counters
        sent.append(now)
    return sent[: period or len(sent)]


def _steps(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    count: int | None,
) -> Iterator[tuple[np.ndarray, dict[int, int]]]:
    """For each of `count` steps: bytes of each device, and counters before it."""
    sizes = {name: workers.mesh.shape[name] for name in workers.axis_name}
    spec = shapes_of(params)
    axes = list(sizes.items())

    def next_state(updates, state, params):
        return tx.update(updates, state, params)[1]

    @functools.cache
    def program(phases: Any) -> tuple[core.ClosedJaxpr, tuple[bool, ...]]:
        with as_on_devices(workers.mesh.shape, workers.axis_name):
            now = phases.unflatten(jax.tree.leaves(state))
            update = jax.make_jaxpr(next_state, axis_env=axes)(spec, now, spec)
        return update, _wanted(update, len(unknown), context)

    with as_on_devices(workers.mesh.shape, workers.axis_name):
        first, state = jax.make_jaxpr(tx.init, axis_env=axes, return_shape=True)(spec)
    context = WalkContext(sizes, {}, {})
    everything = [True] * len(first.out_avals)
    known = walk(first, [None] * len(first.in_avals), context, everything).known
    unknown = [None] * len(jax.tree.leaves(spec))
    phases = jax.tree.structure(state)
    for step in itertools.count() if count is None else range(count):
        phases = _advanced(phases, known)
        counters = {i: int(x) for i, x in enumerate(known) if _is_counter(x)}
        inputs = [*unknown, *known, *unknown]
        update, wanted = program(phases)
        last = step + 1 == count  # its state is looked at by no step
        walked = walk(update, inputs, context, None if last else wanted)
        known = walked.known
        yield np.broadcast_to(walked.sent, tuple(sizes.values())), counters


def _wanted(
    update: core.ClosedJaxpr, first: int, context: WalkContext
) -> tuple[bool, ...]:
    """Counters of the next state, and what later steps' conditionals look at.

    The state stands in the inputs from `first` on, as it does in the outputs.
    """
    wanted = tuple(
        aval.shape == () and jnp.issubdtype(aval.dtype, jnp.integer)
        for aval in map(shape_of, update.jaxpr.outvars)
    )
    while True:
        inputs = looked_at(update.jaxpr, wanted, context).inputs
        state = inputs[first : first + len(wanted)]
        more = tuple(a or b for a, b in zip(wanted, state, strict=True))
        if more == wanted:
            return wanted
        wanted = more


def _is_counter(x: Any) -> bool:
    return (
        x is not None
        and np.ndim(x) == 0
        and np.issubdtype(np.asarray(x).dtype, np.integer)
    )


def _advanced(phases: Any, known: list[Any]) -> Any:
    """The structure of a state, with its clocks in the phases of their counts."""
    places = [one.count for one in clocks_of(phases.unflatten(range(len(known))))]
    counts = [int(known[place]) for place in places]
    return jax.tree.structure(set_phases(phases.unflatten(range(len(known))), counts))
