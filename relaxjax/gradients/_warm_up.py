"""Parts of training: a transformation that acts before a step, or from it on.

Both are one transformation and the identity, by turns; the switch is one of phases
(`relaxjax.advance_phases`), so that neither costs anything in the other's time.

    before_step(tx, s):   u_t = tx(g_t) for t < s, else g_t
    from_step(tx, s):     u_t = g_t for t < s, else tx(g_t)

What begins at a step begins as if training did: with the params of that step. That is a
phase of its own, of one step.
"""

from typing import Any, NamedTuple

import optax

from relaxjax._core._checks import require_whole
from relaxjax._core._phases import Clock, clock
from relaxjax._core._tree import require_params


class PartOfTrainingState(NamedTuple):
    """State of `before_step` and `from_step`.

    Attributes:
      clock: counts steps.
      inner_state: of the transformation; as it was before it begins or after it ends.
    """

    clock: Clock
    inner_state: optax.OptState


def before_step(
    tx: optax.GradientTransformation, step: int
) -> optax.GradientTransformationExtraArgs:
    """The transformation until `step` steps are taken, then the identity.

    Args:
      tx: any, such as a reducer that workers go without afterwards.
      step: number of steps that it takes part in, 0 or more.

    Returns:
      A gradient transformation.

    Raises:
      ValueError: `step` is no whole number of 0 or more.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> tx = relaxjax.before_step(optax.scale(10.0), 1)
      >>> state = tx.init(jnp.zeros(()))
      >>> for _ in range(2):
      ...     out, state = tx.update(jnp.float32(1), relaxjax.advance_phases(state))
      ...     print(out)
      10.0
      1.0
    """
    require_whole("before_step", "step", step, 0)
    inner = optax.with_extra_args_support(tx)

    def init(params: optax.Params) -> Any:
        return PartOfTrainingState(clock(step), inner.init(params))

    def update(updates, state, params=None, **extra_args) -> Any:
        now, kept = state
        if now.phase == 0:
            updates, kept = inner.update(updates, kept, params, **extra_args)
        return updates, PartOfTrainingState(now.tick(), kept)

    return optax.GradientTransformationExtraArgs(init, update)


def from_step(
    tx: optax.GradientTransformation, step: int
) -> optax.GradientTransformationExtraArgs:
    """The identity until `step` steps are taken, then the transformation.

    Args:
      tx: any; it begins with the params that it finds.
      step: number of steps without it, 0 or more.

    Returns:
      A gradient transformation; `update` needs `params`.

    Raises:
      ValueError: `step` is no whole number of 0 or more; in `update` no `params`.

    Example:
      >>> import optax, relaxjax
      >>> tx = optax.chain(  # DiLoCo after a warm-up in lock step
      ...     relaxjax.before_step(relaxjax.all_reduce("data"), 1000),
      ...     optax.adamw(4e-4),
      ...     relaxjax.from_step(relaxjax.diloco(optax.identity(), "data", 100), 1000),
      ... )
    """
    require_whole("from_step", "step", step, 0)
    inner = optax.with_extra_args_support(tx)
    waiting, starting = range(2)

    def init(params: optax.Params) -> Any:
        return PartOfTrainingState(clock(step, step + 1), inner.init(params))

    def update(updates, state, params: Any = None, **extra_args) -> Any:
        now, kept = state
        require_params(params, "from_step", "with which it begins")
        if now.phase == starting:
            kept = inner.init(params)
        if now.phase != waiting:
            updates, kept = inner.update(updates, kept, params, **extra_args)
        return updates, PartOfTrainingState(now.tick(), kept)

    return optax.GradientTransformationExtraArgs(init, update)
