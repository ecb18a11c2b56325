"""QSR, the quadratic synchronization rule: the smaller the steps, the longer the way.

Source: Gu et al. 2024 (arXiv:2310.14423). With the learning rate eta(t) after t steps,
asked after each meeting:

    H(t) = max(least, floor((alpha / eta(t))^power))        power = 2

During a warm-up H is `least`. Where the length of the run is given, the last period is
cut, so that the workers meet at its end. The paper's alpha is 0.01 to 0.02 for AdamW at
peaks of some 0.008, with H of 4 at least; its power of 1 is the older linear rule.

A whole number may be a rounding less in float32: what is within 1e-5 of the next whole
number, relative to it, is taken for it.

Cost: a few operations on single numbers; nothing is sent.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._checks import is_traced, require_whole
from relaxjax.periods._calendar import LONGEST, Schedule

_CALLER = "periods.qsr"


def qsr(
    learning_rate: optax.ScalarOrSchedule,
    alpha: float,
    *,
    least: int = 4,
    most: int = LONGEST,
    power: float = 2.0,
    warm_up: int = 0,
    steps: int | None = None,
) -> Schedule:
    """Periods that grow as the learning rate falls.

    Args:
      learning_rate: eta, the local optimizer's schedule over steps, as it is given to
        optax; or a number.
      alpha: the rate at which H would be 1: twice the alpha is four times the period.
      least: the smallest H, that of a warm-up too.
      most: the largest H.
      power: 2 for the quadratic rule, 1 for the linear one; 3 is the cubic one.
      warm_up: the number of first steps in which H is `least`.
      steps: the length of the run, at whose end the last period is cut; None: it is not
        cut, and workers may be apart when training stops.

    Returns:
      A schedule for `sync_every` or `every`.

    Raises:
      ValueError: `alpha` or `power` is negative; `least`, `most` or `steps` is below 1,
        or `most` below `least`; `warm_up < 0`; the rate begins at 0 without a warm-up.

    Example:
      >>> import relaxjax
      >>> [int(relaxjax.periods.qsr(lr, 0.0175)(0)) for lr in (0.008, 0.004, 0.002)]
      [4, 19, 76]
    """
    for name, value in (("alpha", alpha), ("power", power)):
        if not value >= 0:
            raise ValueError(f"{_CALLER}: {name}={value} must be 0 or more")
    require_whole(_CALLER, "least", least)
    require_whole(_CALLER, "most", most, least)
    require_whole(_CALLER, "warm_up", warm_up, 0)
    if steps is not None:
        require_whole(_CALLER, "steps", steps)
    rate = learning_rate if callable(learning_rate) else lambda _: learning_rate
    if callable(learning_rate) and not warm_up and _is_zero(rate(0)):
        raise ValueError(
            f"{_CALLER}: learning_rate is 0 at the first step, by which workers would "
            "meet first after as many steps as there are; pass warm_up=, the number of "
            "steps in which it rises"
        )

    def period(step: jax.Array | int) -> jax.Array:
        eta = jnp.asarray(rate(step), jnp.float32)
        h = jnp.floor((alpha / eta) ** power * (1 + 1e-5))
        h = jnp.where(h >= least, jnp.minimum(h, most), least)  # NaN is the least
        h = jnp.where(jnp.asarray(step) < warm_up, least, h).astype(jnp.int32)
        return h if steps is None else _cut(h, steps - jnp.asarray(step))

    return period


def _is_zero(rate: Any) -> bool:
    return not is_traced(rate) and float(rate) == 0


def _cut(h: jax.Array, left: jax.Array) -> jax.Array:
    """Not past the end of the run; after it, as if there were none."""
    return jnp.where(left > 0, jnp.minimum(h, left), h)
