"""Transformations that follow one another at stated steps, over one state.

    u_t, z_{t+1} = tx_k(g_t, z_t)    for s_k <= t < s_{k+1}, with s_0 = 0

Each is a phase, and so a program of its own (`relaxjax.advance_phases`), which sends
what it would send alone. The state z goes on as it is: what one code has left in a
residual is delivered by the next. So all of them must have states alike.

Law: where all are the same, the run is that of one.

Cost: a compilation for each; nothing in a step.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import optax

from relaxjax._core._arrays import require_arrays
from relaxjax._core._checks import require_transformation, require_whole
from relaxjax._core._phases import Clock, clock, phased
from relaxjax._core.traced._marks import of_own_state

_CALLER = "by_step"
_AS_IN = "as in {0: all_reduce(..), 1000: all_reduce(..)}"


class ByStepState(NamedTuple):
    """State of `by_step`.

    Attributes:
      clock: steps taken.
      inner_state: the state that all of the transformations have in turn.
    """

    clock: Clock
    inner_state: optax.OptState


def by_step(
    transformations: Mapping[int, optax.GradientTransformation],
) -> optax.GradientTransformationExtraArgs:
    """A transformation from each of these steps on, such as codes of fewer bits.

    Experimental: this may change in any release.

    Args:
      transformations: by the number of steps taken before it begins, from 0 on. Their
        states have the same structure, shapes and dtypes, as those of one reducer with
        several codes have, all with error feedback or all without.

    Returns:
      A gradient transformation. It begins new phases (`relaxjax.advance_phases`).

    Raises:
      TypeError: the argument is not a dictionary, or a value is not a transformation;
        in `init`, a leaf is not an array.
      ValueError: no transformation begins at step 0; a step is not a whole number of 0
        or more; in `init`, the states have different structures, shapes or dtypes.

    Example:
      >>> import optax, relaxjax
      >>> from relaxjax import compression
      >>> def reducer(bits):
      ...     code = compression.error_feedback(compression.quantize(bits))
      ...     return relaxjax.all_reduce("data", compressor=code, algorithm="two_shot")
      >>> tx = optax.chain(
      ...     relaxjax.by_step({0: reducer(8), 1000: reducer(4)}), optax.adamw(4e-4)
      ... )
    """
    rows = _checked(transformations)
    inner = [optax.with_extra_args_support(tx) for _, tx in rows]

    def init(params: optax.Params) -> Any:
        require_arrays(params, _CALLER)
        _require_alike(params, rows)
        ends = [step for step, _ in rows[1:]]
        return ByStepState(clock(*ends), inner[0].init(params))

    def update(updates, state, params=None, **extra_args) -> Any:
        time, inside = state
        now = inner[time.phase]
        updates, inside = now.update(updates, inside, params, **extra_args)
        return updates, ByStepState(time.tick(), inside)

    return of_own_state(_CALLER, init, phased(update))


def _checked(given: Any) -> list[tuple[int, optax.GradientTransformation]]:
    """The rows in the order of their steps."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{_CALLER}: transformations={given!r} must be a gradient transformation "
            f"from each step on, in a dictionary, {_AS_IN}"
        )
    if 0 not in given:
        raise ValueError(
            f"{_CALLER}: transformations={given!r} must have one from step 0 on, "
            f"{_AS_IN}"
        )
    for step, tx in given.items():
        require_whole(_CALLER, "a step", step, 0)
        require_transformation(_CALLER, f"transformations[{step}]", tx)
    return sorted(given.items(), key=lambda row: row[0])


def _require_alike(params: Any, rows: list[Any]) -> None:
    """ValueError with the first two whose states differ."""
    kinds = [(step, jax.eval_shape(tx.init, params)) for step, tx in rows]
    for (step, one), (later, other) in pairwise(kinds):
        if _layout(one) != _layout(other):
            raise ValueError(
                f"{_CALLER}: the state goes from one transformation to the next, and "
                f"from step {step} on it is {_short(one)}, but from step {later} on "
                f"{_short(other)}. Give codes that all have error feedback, or none, "
                "around the same reducer; or begin a new state with from_step"
            )


def _layout(state: Any) -> Any:
    leaves, form = jax.tree.flatten(state)
    return form, [(x.shape, x.dtype) for x in leaves]


def _short(state: Any) -> str:
    text = str(jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", state))
    return text if len(text) < 300 else f"{text[:300]}.."
