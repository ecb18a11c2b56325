"""Warnings about chains that train, but not as intended: before training."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optax

from relaxjax._core._arrays import shapes_of
from relaxjax._core._local import LocalState
from relaxjax._core.traced._flows import Flows
from relaxjax._core.traced._marks import Station
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._remembered import Memory, remembered
from relaxjax.workers.followed._traced import Traced, parts_of, tracing


def warn_of_idle(flows: Flows) -> None:
    for reducer, at in sorted(flows.idle):
        warnings.warn(
            f"init: {reducer.name} makes the gradients of all workers equal over "
            f"{list(at.axes)} in each step, so that the models that {at.name} brings "
            "together are equal before it: one of the two sends bytes for nothing. "
            f"Leave {reducer.name} out, or give the two different axes",
            stacklevel=5,
        )


def warn_of_mini_steps(flows: Flows, state: Any) -> None:
    """Warns of an accumulator, optax's or ours, outside of which models meet."""
    outside = parts_of(state, lambda part: _accumulates(part) or _meets(part))
    if not (any(map(_accumulates, outside)) and any(map(_meets, outside))):
        return
    names = {at.name for at in flows.stations if at.side == "models"}
    for name in sorted(names) or ["local_sgd"]:  # which begins in a later phase
        warnings.warn(
            f"init: {name} counts calls of update, and gradients are added up "
            "before it: the optimizer steps in few of these calls, and so takes "
            f"fewer steps between two exchanges than {name} was told. "
            "Accumulate outermost, as in relaxjax.accumulate(tx, every), with "
            f"{name} in tx",
            stacklevel=5,
        )


_SKIPS = {
    "SkipNonfiniteState": "skip_nonfinite",
    "ApplyIfFiniteState": "optax.apply_if_finite",
}


def warn_of_kept_nans(state: Any) -> None:
    """Warns of `optax.MultiSteps` around what leaves out a NaN: it keeps the NaN."""
    around = optax.MultiStepsState
    for part in parts_of(state, lambda part: isinstance(part, around)):
        inner = part.inner_opt_state if isinstance(part, around) else ()
        inside = parts_of(inner, lambda part: type(part).__name__ in _SKIPS)
        for name in {type(x).__name__ for x in inside} & _SKIPS.keys():
            warnings.warn(
                "init: optax.MultiSteps multiplies its gradients by 0 to begin anew, "
                f"and so keeps a NaN: after one, {_SKIPS[name]} leaves out all steps. "
                "Accumulate by relaxjax.accumulate(tx, every)",
                stacklevel=5,
            )


def warn_of_memory(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None,
    known: Traced,
) -> None:
    """Warns of an optimizer that leads the workers back to what each remembers."""
    stations = known.flows.stations if known.flows else ()
    models = sorted(at for at in stations if at.side == "models")
    if not models:
        return
    with tracing(workers) as trace:
        memory = remembered(trace, tx, shapes_of(params), extra_args)
    for leaf, moves in memory.leaves.items():
        if not _is_averaged(leaf, moves, memory.fields, known):
            warnings.warn(_memory_text(leaf, memory, models[0]), stacklevel=5)
            return


def _is_averaged(leaf: str, moves: bool, fields: Sequence[str], known: Traced) -> bool:
    """Whether where a leaf of the state leads to is averaged wherever params are.

    A leaf that no step changes is equal on all workers: what else it leads by is not.
    """
    every, periods = known.meets.get("params", 0), known.meets
    met = {name for name, period in periods.items() if every % period == 0}
    return not met.isdisjoint(leaf.split("/")) if moves else met.issuperset(fields)


def _memory_text(leaf: str, memory: Memory, at: Station) -> str:
    periods = ", ".join(f"{name!r}: H" for name in ("params", *memory.fields))
    axis = at.axes[0] if len(at.axes) == 1 else at.axes
    when, after, other = "", "the next step", ""
    if memory.by_turns:
        when, after = " at some of its steps, as sam's do", "such a step"
        other = (
            ", or let models meet right after such steps, at a multiple of its period"
        )
    return (
        f"init: the optimizer remembers params in {leaf!r} of its state, "
        f"and its updates lead there{when}: {at.name} brings models together, and "
        f"{after} parts them again. Let what it remembers meet too: "
        f"relaxjax.desynced(optimizer, {axis!r}, periods={{{periods}}}) for H steps, "
        f"or periods=H for all of its floats{other}"
    )


def _accumulates(part: Any) -> bool:
    return hasattr(part, "mini_step")


def _meets(part: Any) -> bool:
    """Whether it is the state of models that meet: their leaves differ in between."""
    return isinstance(getattr(part, "leaves", None), LocalState)
