"""Delayed Nesterov: momentum for outer gradients that arrive one by one.

Source: Liu et al. 2024, as second-hand notes give it (with its c = 0). For the k-th
outer gradient D to arrive, of whatever worker, and N arrivals in a round:

    x <- x - eta D / N                          (each arrival)
    m <- mu m + mean of the last N D            (each N-th)
    x <- x - eta mu m                           (each N-th)

Nesterov's rule at each arrival would repeat a stale direction N times as often. Over N
arrivals x moves as far as by Nesterov's step along their mean:

    sum of the N steps = -eta (mean D + mu m)
    N = 1:  SGD with Nesterov momentum

Cost: nothing is sent. State: m, and the sum of the D of this round.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._checks import require_momentum, require_whole
from relaxjax._core._merge_rules import EQUAL, MEAN

_CALLER = "delayed_nesterov"


class DelayedNesterovState(NamedTuple):
    """State of `delayed_nesterov`.

    Attributes:
      arrived: int32, the number of arrivals in this round.
      momentum: m.
      total: the sum of the outer gradients of this round.
    """

    arrived: Annotated[jax.Array, EQUAL]
    momentum: Annotated[Any, MEAN]
    total: Annotated[Any, MEAN]


def delayed_nesterov(
    learning_rate: Any, *, momentum: float = 0.9, every: int
) -> optax.GradientTransformation:
    """An outer optimizer for outer gradients that arrive one by one.

    Give it to `relaxjax.asynchronous_diloco` as `outer`.

    Args:
      learning_rate: eta, of a round.
      momentum: mu, in [0, 1).
      every: N, the number of arrivals in a round: of workers, as a rule.

    Returns:
      An optimizer, which sends nothing.

    Raises:
      ValueError: `momentum` is not in [0, 1), `every` not a whole number of 1 or more.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.delayed_nesterov(1.0, momentum=0.5, every=2)
      >>> state = tx.init(jnp.float32(0))
      >>> for d in (2.0, 4.0):
      ...     step, state = tx.update(jnp.float32(d), state)
      ...     print(step)
      -1.0
      -3.5
    """
    require_momentum(_CALLER, momentum)
    require_whole(_CALLER, "every", every)

    def init(params: optax.Params) -> DelayedNesterovState:
        m, total = (optax.tree.zeros_like(params) for _ in range(2))
        return DelayedNesterovState(jnp.zeros((), jnp.int32), m, total)

    def update(updates, state, params=None) -> tuple[Any, DelayedNesterovState]:
        del params
        count, like = state.arrived + 1, updates
        updates = optax.tree.cast_like(updates, state.total)
        last = count >= every
        total = jax.tree.map(jnp.add, state.total, updates)

        def renew(m: jax.Array, t: jax.Array) -> jax.Array:
            return jnp.where(last, momentum * m + t / every, m)

        def step(d: jax.Array, m: jax.Array) -> jax.Array:
            return -learning_rate * (d / every + jnp.where(last, momentum * m, 0))

        m = jax.tree.map(renew, state.momentum, total)
        total = jax.tree.map(lambda t: jnp.where(last, 0, t), total)
        moved = optax.tree.cast_like(jax.tree.map(step, updates, m), like)
        return moved, DelayedNesterovState(jnp.where(last, 0, count), m, total)

    return optax.GradientTransformation(init, update)
