"""Parts of training: a transformation that acts before a step, or from it on.

Both are a transformation in one phase and the identity in the other
(`relaxjax.advance_phases`), so that neither costs anything in the other's time.

    before_step(tx, s):   u_t = tx(g_t) for t < s, else g_t
    from_step(tx, s):     u_t = g_t for t < s, else tx(g_t)

What begins at a step begins as if training did: with the params of that step. That is a
phase of its own, of one step.
"""

from typing import Any, NamedTuple

import optax

from relaxjax._core._checks import require_params, require_transformation, require_whole
from relaxjax._core._phases import Clock, clock, hosted, phased
from relaxjax._core.traced._marks import of_own_state


class PartOfTrainingState(NamedTuple):
    """State of `before_step` and `from_step`.

    Attributes:
      clock: steps taken.
      inner_state: state of the transformation; unchanged where the identity stands.
    """

    clock: Clock
    inner_state: optax.OptState


def before_step(
    tx: optax.GradientTransformation, step: int
) -> optax.GradientTransformationExtraArgs:
    """The transformation until `step` steps are taken, then the identity.

    Args:
      tx: any transformation, such as a reducer that workers do without afterwards.
      step: number of steps with it, 0 or more.

    Returns:
      A gradient transformation.

    Raises:
      ValueError: `step` is not a whole number of 0 or more.

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
    require_transformation("before_step", "tx", tx)
    require_whole("before_step", "step", step, 0)
    inner = optax.with_extra_args_support(tx)

    def init(params: optax.Params) -> Any:
        return PartOfTrainingState(clock(step), inner.init(params))

    def update(updates, state, params=None, **extra_args) -> Any:
        time, inside = state
        if time.phase == 0:
            updates, inside = inner.update(updates, inside, params, **extra_args)
        return updates, PartOfTrainingState(time.tick(), inside)

    return of_own_state("before_step", init, phased(update))


def from_step(
    tx: optax.GradientTransformation, step: int
) -> optax.GradientTransformationExtraArgs:
    """The identity until `step` steps are taken, then the transformation.

    Args:
      tx: any transformation; it begins with the params of its first step.
      step: number of steps without it, 0 or more.

    Returns:
      A gradient transformation; `update` needs `params`.

    Raises:
      ValueError: `step` is not a whole number of 0 or more; in `update` `params` are
        missing.

    Example:
      >>> import optax, relaxjax
      >>> tx = optax.chain(  # DiLoCo after a warm-up in lock step
      ...     relaxjax.before_step(relaxjax.all_reduce("data"), 1000),
      ...     optax.adamw(4e-4),
      ...     relaxjax.from_step(relaxjax.diloco(optax.identity(), "data", 100), 1000),
      ... )
    """
    require_transformation("from_step", "tx", tx)
    require_whole("from_step", "step", step, 0)
    inner = optax.with_extra_args_support(tx)
    waiting, starting = range(2)

    def init(params: optax.Params) -> Any:
        begun = step + 1 if step else 0  # the first step of all begins as `init` did
        return PartOfTrainingState(clock(step, begun), inner.init(params))

    def update(updates, state, params: Any = None, **extra_args) -> Any:
        time, inside = state
        require_params(params, "from_step", "with which it begins")
        if time.phase == starting:
            inside = hosted(inner.init(params), by_host=time.hosted)
        if time.phase != waiting:
            updates, inside = inner.update(updates, inside, params, **extra_args)
        return updates, PartOfTrainingState(time.tick(), inside)

    return of_own_state("from_step", init, phased(update))
