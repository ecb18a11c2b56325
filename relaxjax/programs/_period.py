"""The steps after which sending begins anew, and what is sent in each.

The programs of `tx.init` and `tx.update` are walked (`relaxjax.programs._jaxpr`),
through chains, masks, wrappers and loops, with the state's counters of each step. What
a collective sends is stated in `relaxjax.programs._jaxpr_bytes`.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._arrays import shapes_of
from relaxjax._core._jaxprs import Program
from relaxjax._core._phases import clocks_of, set_phases
from relaxjax._core._tree import is_key
from relaxjax._core.traced._extra_args import ExtraArgs, with_extra_args
from relaxjax.periods import is_scheduled
from relaxjax.programs._jaxpr import WalkContext, walk
from relaxjax.programs._jaxpr_bytes import shape_of
from relaxjax.programs._jaxpr_computed import plain
from relaxjax.programs._jaxpr_looked import looked_at
from relaxjax.programs._questions import Asked, stands, steps_alike
from relaxjax.workers import WorkerMesh, tracing

_WALKED, _MOST = 4096, 1 << 17  # steps that are walked, and that are looked at
_SCHEDULED = 1000  # steps that are looked at where a schedule says when is sent
_FEW = 8  # steps that are not worth being left out, nor a phase


class Step(NamedTuple):
    """What is sent in a step.

    Attributes:
      sent: int64, bytes of each device, shaped like the mesh.
      rounds: messages that wait for each other.
    """

    sent: np.ndarray
    rounds: int


class Period(NamedTuple):
    """The steps after which sending begins anew.

    Attributes:
      steps: what is sent in each of them.
      closed: whether it was seen to begin anew; else `steps` are the first ones of many
        that differ, as those of methods whose rounds grow.
    """

    steps: list[Step]
    closed: bool


def period_of(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None = None,
    scheduled: int = _SCHEDULED,
) -> Period:
    """The period of an update, in its first phase of more than a few steps.

    It is over with a step that asks and stands as an earlier one did
    (`_questions.stands`). A question in a branch that is not taken keeps its last
    standing. Questions say nothing under a schedule, which is asked in meetings alone:
    there, it is the first steps, as many as are `scheduled`.
    """
    if is_by_schedule(tx, params, workers):
        walked_all = walked_steps(tx, params, workers, scheduled, extra_args)
        return Period(expanded(walked_all), False)
    steps: list[Step] = []
    latest: Asked = {}
    standing: dict[Any, Any] = {}
    seen: dict[Any, int] = {}
    walked_all = walked_steps(tx, params, workers, None, extra_args)
    for walked in itertools.islice(walked_all, _WALKED):
        now = len(steps)
        standing |= stands(walked.asked, latest)
        stand = frozenset(standing.items()), frozenset(walked.asked)
        begun = seen.get(stand, now)
        if begun < now:
            turn = begun + -begun % (now - begun)  # a multiple of the period
            return Period(_shortest(steps[turn:now] + steps[begun:turn]), True)
        latest |= walked.asked
        if walked.phase >= _FEW:
            seen[stand] = now
        steps += [walked.step] * (1 + walked.alike)
        if len(steps) >= _MOST:
            break
    return Period(steps[:_MOST], False)


def is_by_schedule(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh
) -> bool:
    """Whether a schedule says when something is sent (`relaxjax.periods`)."""
    with tracing(workers) as trace:
        return is_scheduled(trace(tx.init, return_shape=True)(shapes_of(params))[1])


def _shortest(steps: list[Step]) -> list[Step]:
    """One of the steps if all send the same, whatever else is done in some of them."""
    sent, rounds = steps[0]
    alike = all(np.array_equal(x.sent, sent) and x.rounds == rounds for x in steps)
    return steps[:1] if alike else steps


def steps_of_a_run(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh, steps: int
) -> list[Step]:
    """Those of a period where it says all, and else of so many steps."""
    if repeats(tx, params, workers):
        return period_of(tx, params, workers).steps
    return expanded(walked_steps(tx, params, workers, steps))


def repeats(tx: optax.GradientTransformation, params: Any, workers: WorkerMesh) -> bool:
    """Whether a period says all: no schedule asks, and no other program begins."""
    with tracing(workers) as trace:
        state = trace(tx.init, return_shape=True)(shapes_of(params))[1]
    return not is_scheduled(state) and not any(c.ends for c in clocks_of(state))


def first_steps(
    tx: optax.GradientTransformation, params: Any, workers: WorkerMesh, count: int
) -> list[Step]:
    """What is sent in each of the first `count` steps."""
    return expanded(walked_steps(tx, params, workers, count))


def expanded(walked: Iterable["Walked"]) -> list[Step]:
    """One for each step, of those alike as well."""
    return [one.step for one in walked for _ in range(1 + one.alike)]


class Walked(NamedTuple):
    """A step that was walked.

    Attributes:
      step: what it sends.
      alike: the number of steps after it that send the same, and are not walked.
      phase: the number of steps, with it, until a phase ends.
      asked: what it has asked of its counters.
    """

    step: Step
    alike: int
    phase: float
    asked: Asked


def walked_steps(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    count: int | None,
    extra_args: Mapping[str, Any] | None = None,
) -> Iterator[Walked]:
    """What `count` steps send; of many that are alike, the first ones are walked."""
    sizes = {name: workers.mesh.shape[name] for name in workers.axis_name}
    spec = shapes_of(params)

    @functools.cache
    def program(phases: Any) -> tuple[Program, tuple[bool, ...]]:
        with tracing(workers) as trace:
            now = phases.unflatten(jax.tree.leaves(state))
            update = with_extra_args(
                lambda x: next_of(x, trace)(spec, now, spec, x.arrays), spec, extra_args
            )
        clocks = clocks_of(phases.unflatten(range(len(known))))
        return update, _wanted(update, clocks, len(unknown), context)

    def next_of(extra: ExtraArgs, trace: Any) -> Any:
        return trace(lambda *args: extra.update_of(tx)(*args)[1])

    with tracing(workers) as trace:
        first, state = trace(tx.init, return_shape=True)(spec)
    context = WalkContext(sizes, {}, {}, {})
    everything = [True] * len(first.out_avals)
    known = walk(first, [None] * len(first.in_avals), context, everything).known
    unknown = [None] * len(jax.tree.leaves(spec))
    phases = jax.tree.structure(state)
    left = math.inf if count is None else count
    recent: list[tuple[list[Any], Asked]] = []
    while left > 0:
        phases = _advanced(phases, known)
        update, wanted = program(phases)
        rest = len(update.in_avals) - len(unknown) - len(known)
        inputs = [*unknown, *known, *[None] * rest]
        context.asked.clear()  # the state after the last step is looked at by no step
        walked = walk(update, inputs, context, None if left == 1 else wanted)
        recent = [(known, dict(context.asked)), *recent][:3]
        known = walked.known
        until = _until_a_phase_ends(phases, known)
        alike = _alike(known, recent, min(left - 1, until))
        sent = np.broadcast_to(walked.sent, tuple(sizes.values()))
        yield Walked(Step(sent, walked.rounds), alike, 1 + until, recent[0][1])
        left -= 1 + alike
        if alike:
            known = [
                _moved(x, y, alike) for x, y in zip(known, recent[0][0], strict=True)
            ]
            recent = []


def _wanted(
    update: Program, clocks: list[Any], first: int, context: WalkContext
) -> tuple[bool, ...]:
    """The clocks' counts in the next state, and what later conditionals look at.

    Those of other phases, which are still to come, may look at any counter. The state
    stands in the inputs from `first` on, as it does in the outputs.
    """
    out = [shape_of(var) for var in update.jaxpr.outvars]
    wanted = tuple(i in [clock.count for clock in clocks] for i in range(len(out)))
    if any(clock.phase < len(clock.ends) for clock in clocks):
        wanted = tuple(
            x.shape == () and jnp.issubdtype(x.dtype, jnp.integer) for x in out
        )
    while True:
        inputs = looked_at(update.jaxpr, wanted, context.looks).inputs
        state = inputs[first : first + len(wanted)]
        more = tuple(a or b for a, b in zip(wanted, state, strict=True))
        if more == wanted:
            return wanted
        wanted = more


def _alike(known: list[Any], recent: list[tuple[list[Any], Asked]], most: float) -> int:
    """The number of steps to leave out: those alike, if counters move steadily."""
    if len(recent) < 3:
        return 0
    (first, _), (second, _), *_ = recent
    if not all(map(_is_steady, known, first, second)):
        return 0
    alike = min(most, _MOST, steps_alike(*(asked for _, asked in recent)))
    return int(alike) if alike >= _FEW else 0


def _is_steady(last: Any, second: Any, first: Any) -> bool:
    """Whether a known value moved as far as before, or is not known in any step."""
    if last is None or second is None or first is None:
        return last is second is first
    if not _counts(last):
        return bool(np.all(plain(last) == plain(second)))
    third, second, first = (np.asarray(x, np.int64) for x in (last, second, first))
    return np.array_equal(third - second, second - first)


def _moved(last: Any, before: Any, steps: int) -> Any:
    """A known value after as many more steps."""
    if last is None or not _counts(last):
        return last
    last, before = np.asarray(last), np.asarray(before)
    wide = last.astype(np.int64)
    # Like a counter's own, this wraps around in its dtype.
    return (wide + (wide - before.astype(np.int64)) * steps).astype(last.dtype)


def _counts(x: Any) -> bool:
    keyed = isinstance(x, jax.Array) and is_key(x)
    return not keyed and np.issubdtype(np.asarray(x).dtype, np.integer)


def _until_a_phase_ends(phases: Any, known: list[Any]) -> float:
    """Steps in which each clock stays in its phase."""
    clocks = clocks_of(phases.unflatten(range(len(known))))
    ends = [
        end - int(known[clock.count])
        for clock in clocks
        if known[clock.count] is not None  # as after the last step
        for end in clock.ends[clock.phase :]
    ]
    return min(ends, default=math.inf)


def _advanced(phases: Any, known: list[Any]) -> Any:
    """The structure of a state, with its clocks in the phases of their counts."""
    clocks = clocks_of(phases.unflatten(range(len(known))))
    counts = [
        (0, *clock.ends)[clock.phase]  # stays in its phase, where nothing is known
        if (count := known[clock.count]) is None
        else int(count)
        for clock in clocks
    ]
    return jax.tree.structure(set_phases(phases.unflatten(range(len(known))), counts))
