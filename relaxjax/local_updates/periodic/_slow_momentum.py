"""SlowMo: local steps, and momentum over how far a round of them has moved.

Source: Wang et al. 2020. With the learning rate g of the local steps, beta the slow
momentum and alpha the slow rate, u = 0 at the start, the outer optimizer of DiLoCo's
outer step (`relaxjax.local_updates.periodic._diloco`) is:

    u = beta u + (a - mean_i x_i) / g       (after each H-th step)
    a = a - alpha g u,  x_i = a

beta = 0 and alpha = 1 are local SGD. A constant g cancels (heavy ball of rate alpha
over outer gradients); with a schedule the momentum is in units of the gradient.

Cost: that of `local_sgd`. State: that of `local_sgd`, and u, of the params' size.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_momentum
from relaxjax._core._merge_rules import EQUAL, MEAN
from relaxjax.compression import Compressor
from relaxjax.local_updates.common._local_steps import ExchangeSpec, local_steps
from relaxjax.local_updates.periodic._diloco import outer_step
from relaxjax.periods import Period

_CALLER = "slow_momentum"


class SlowMomentumState(NamedTuple):
    """The outer state of `slow_momentum`.

    Attributes:
      steps: int32, the number of local steps up to the last outer step; under a
        schedule, up to the last step.
      momentum: u, like the anchor.
    """

    steps: Annotated[jax.Array, EQUAL]
    momentum: Annotated[Any, MEAN]


def slow_momentum(
    axis_name: AxisName,
    sync_every: Period,
    *,
    momentum: float = 0.5,
    slow_learning_rate: float = 1.0,
    learning_rate: optax.ScalarOrSchedule | None = None,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
    reducer: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Local steps whose synchronizations go on in the direction of those before.

    Put it last in the chain, like `local_sgd`.

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, the number of steps from one outer step to the next, 1 or more; or
        a schedule of `relaxjax.periods`, which is asked after each of them.
      momentum: beta, in [0, 1).
      slow_learning_rate: alpha.
      learning_rate: g, the local optimizer's schedule over steps, above 0; a number
        or None where it is constant.
      compressor: see `local_sgd`.
      algorithm: see `relaxjax.all_reduce`.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.
      reducer: see `local_sgd`.

    Returns:
      A gradient transformation, as in `local_sgd`.

    Raises:
      ValueError: a momentum outside [0, 1); what `local_sgd` refuses.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(optax.sgd(1.0), relaxjax.slow_momentum("data", 1))
      >>> def train(x):
      ...     state = tx.init(x)
      ...     for _ in range(2):
      ...         updates, state = tx.update(jnp.ones(()), state, x)
      ...         x = x + updates
      ...     return x
      >>> print(jax.vmap(train, axis_name="data")(jnp.zeros(2)))  # - 1, then - 1.5
      [-2.5 -2.5]
    """
    require_momentum(_CALLER, momentum)
    rate = learning_rate if callable(learning_rate) else lambda _: 1.0

    def init(params: optax.Params) -> Any:
        return SlowMomentumState(
            jnp.zeros((), jnp.int32), optax.tree.zeros_like(params)
        )

    def update(updates, state, params=None) -> Any:
        del params
        steps, u = state
        h = 0 if callable(sync_every) else int(sync_every)  # `_counted` has them
        g = jnp.asarray(rate(steps + h - 1), jnp.float32)
        over = jnp.where(g == 0, 0, 1 / g)  # a rate of 0 has moved nothing

        def step(u: jax.Array, d: jax.Array) -> jax.Array:
            return momentum * u + d * over.astype(u.dtype)

        u = jax.tree.map(step, u, updates)
        moved = jax.tree.map(lambda u: -slow_learning_rate * g.astype(u.dtype) * u, u)
        return moved, SlowMomentumState(steps + h, u)

    exchange = ExchangeSpec(
        _CALLER, axis_name, compressor, algorithm, bucket_bytes, specs, seed, reducer
    )
    step = outer_step(exchange, optax.GradientTransformation(init, update))
    rounds = local_steps(exchange, sync_every, step.init, step.update)
    return _counted(rounds) if callable(sync_every) else rounds


def _counted(
    rounds: optax.GradientTransformationExtraArgs,
) -> optax.GradientTransformationExtraArgs:
    """Rounds whose outer step knows how many steps there were with this one.

    A schedule is no answer: `periods.lasting` may have set another end.
    """

    def update(updates, state, params=None, **extra_args) -> Any:
        outer = state.kept.outer._replace(steps=state.step.taken + 1)
        state = state._replace(kept=state.kept._replace(outer=outer))
        return rounds.update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(rounds.init, update)
