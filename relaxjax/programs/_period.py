"""The steps after which sending begins anew, and what is sent in each.

The programs of `tx.init` and `tx.update` are walked (`relaxjax.programs._jaxpr`),
through chains, masks, wrappers and loops, with the state's counters of each step. What
a collective sends is stated in `relaxjax.programs._jaxpr_bytes`.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._jaxprs import Program, shapes_of
from relaxjax._core._phases import clocks_of, set_phases
from relaxjax._core.traced._extra_args import ExtraArgs, with_extra_args
from relaxjax.programs._jaxpr import WalkContext, walk
from relaxjax.programs._jaxpr_bytes import shape_of
from relaxjax.programs._jaxpr_looked import looked_at
from relaxjax.workers import WorkerMesh, is_silent, tracing

_ALIKE, _MOST = 8, 4096  # steps that show a period of one; that are looked at


class Step(NamedTuple):
    """What is sent in a step.

    Attributes:
      sent: int64, bytes of each device, shaped like the mesh.
      rounds: messages that wait for each other.
    """

    sent: np.ndarray
    rounds: int


def steps_of_a_period(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None = None,
) -> list[Step]:
    """What is sent in the steps after which sending begins anew.

    A period ends where the counters that have turned are back where they began; one
    more must send the same, as other counters may still be on their way. Where none
    turns one step is like another, or, for methods whose rounds grow, the mean is over
    `_MOST` steps.
    """
    most = 1 if workers.n == 1 else _MOST  # one worker sends nothing
    walk_all = walked_steps(tx, params, workers, None, extra_args)
    walked = itertools.islice(walk_all, most)
    first, before = {}, {}
    turned: set[int] = set()
    steps: list[Step] = []
    period = 0
    silent = functools.cache(lambda: is_silent(tx, params, workers, extra_args))
    for step, (now, counters) in enumerate(walked):
        turned |= {i for i, x in counters.items() if x < before.get(i, x)}
        back = turned and all(counters[i] == first[i] for i in turned)
        if back and not period:
            period = step
        if period and step == 2 * period:
            sent = [one.sent for one in steps]
            if np.array_equal(sent[:period], sent[period:]):
                break
            period = step if back else 0
        last = [one.sent for one in steps[-_ALIKE:]]
        alike = step >= _ALIKE and np.ptp(last, axis=0).max() == 0
        if alike and not turned and (last[-1].any() or silent()):
            return steps[-1:]
        if step and not counters:
            period = 1
            break
        first = first or counters
        before = counters
        steps.append(now)
    return steps[: period or len(steps)]


def first_steps(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh, count: int
) -> list[Step]:
    """What is sent in each of the first `count` steps."""
    return [step for step, _ in walked_steps(tx, params, workers, count)]


def walked_steps(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    count: int | None,
    extra_args: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Step, dict[int, int]]]:
    """For each of `count` steps: what is sent, and counters before it."""
    sizes = {name: workers.mesh.shape[name] for name in workers.axis_name}
    spec = shapes_of(params)

    @functools.cache
    def program(phases: Any) -> tuple[Program, tuple[bool, ...]]:
        with tracing(workers) as trace:
            now = phases.unflatten(jax.tree.leaves(state))
            update = with_extra_args(
                lambda x: next_of(x, trace)(spec, now, spec, x.arrays), spec, extra_args
            )
        return update, _wanted(update, len(unknown), context)

    def next_of(extra: ExtraArgs, trace: Any) -> Any:
        return trace(lambda *args: extra.update_of(tx)(*args)[1])

    with tracing(workers) as trace:
        first, state = trace(tx.init, return_shape=True)(spec)
    context = WalkContext(sizes, {}, {})
    everything = [True] * len(first.out_avals)
    known = walk(first, [None] * len(first.in_avals), context, everything).known
    unknown = [None] * len(jax.tree.leaves(spec))
    phases = jax.tree.structure(state)
    for step in itertools.count() if count is None else range(count):
        phases = _advanced(phases, known)
        counters = {i: int(x) for i, x in enumerate(known) if _is_counter(x)}
        update, wanted = program(phases)
        rest = len(update.in_avals) - len(unknown) - len(known)
        inputs = [*unknown, *known, *[None] * rest]
        last = step + 1 == count  # its state is looked at by no step
        walked = walk(update, inputs, context, None if last else wanted)
        known = walked.known
        sent = np.broadcast_to(walked.sent, tuple(sizes.values()))
        yield Step(sent, walked.rounds), counters


def _wanted(update: Program, first: int, context: WalkContext) -> tuple[bool, ...]:
    """Counters of the next state, and what later steps' conditionals look at.

    The state stands in the inputs from `first` on, as it does in the outputs.
    """
    wanted = tuple(
        aval.shape == () and jnp.issubdtype(aval.dtype, jnp.integer)
        for aval in map(shape_of, update.jaxpr.outvars)
    )
    while True:
        inputs = looked_at(update.jaxpr, wanted, context.looks).inputs
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
