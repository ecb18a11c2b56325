"""Local SGD: workers go their own ways and take the mean every `sync_every` steps.

Source: McMahan et al. 2017, Stich 2019. With a compressor of top-k and few bits and
decayed feedback, what SparseLoCo sends (Sarfi et al. 2025). It is DiLoCo's outer step
(`relaxjax.local_updates.periodic._diloco`) with SGD(1):

    x_i <- x_i + u_i                                    (each step)
    a <- a - mean_i C(a - x_i),  x_i <- a               (after each H-th step)

C is the identity, by which a becomes the mean of the models, or a compressor with its
feedback, in units of the model.

Cost: what `all_reduce` sends for the params in float32, once in H steps, and two
buffers of their size: the anchor a, and the feedback's.
"""

from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax.compression import Compressor
from relaxjax.local_updates.common._local_steps import ExchangeSpec, local_steps
from relaxjax.local_updates.periodic._diloco import outer_step
from relaxjax.merges import Rule
from relaxjax.periods import Period

_CALLER = "local_sgd"


def local_sgd(
    axis_name: AxisName,
    sync_every: Period,
    *,
    merge: str | Rule = "mean",
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
    reducer: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Averages the workers' models every `sync_every` steps; silent in between.

    Put it last in the chain, after the optimizer, which then sees each worker's own
    gradient: what comes in is how this worker's params are to move, and what comes out
    is that, or in every `sync_every`-th step what moves them to the common model (to
    one rounding: params + (model - params) is not always model).

    Args:
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, the number of steps from one mean to the next, 1 or more; or
        a schedule of `relaxjax.periods`, which is asked after each of them.
      merge: "mean", or how changes become one otherwise, see `relaxjax.diloco`.
      compressor: the compressor of the change since the last mean, of
        `relaxjax.compression`. With `error_feedback`, what is lost once is sent the
        next time.
      algorithm: see `relaxjax.all_reduce`, which sends the changes.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.
      reducer: what averages the changes in place of `relaxjax.all_reduce`: a
        relaxation that comes before an optimizer, over the same axis, such as
        `relaxjax.power_sgd`. The arguments from `compressor` on are its own then.

    Returns:
      A gradient transformation whose `update` needs `params`. Updates come out in
      float32 where a param is narrower (`optax.apply_updates` takes them so). In the
      step of a mean, `update` takes `weight=`: what this worker's model counts for;
      with a weight of zero it is absent, and goes on from its own.

    Raises:
      ValueError: `sync_every < 1`; an unknown `merge`; what `relaxjax.all_reduce`
        refuses; an argument of it beside `reducer`; in `update` another tree than
        `init` saw, or no `params`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(optax.sgd(1.0), relaxjax.local_sgd("data", sync_every=2))
      >>> def train(gradient):
      ...     x = jnp.float32(0)
      ...     state = tx.init(x)
      ...     for _ in range(2):
      ...         updates, state = tx.update(gradient, state, x)
      ...         x = optax.apply_updates(x, updates)
      ...     return x
      >>> print(jax.vmap(train, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [-6. -6. -6.]
    """
    exchange = ExchangeSpec(
        _CALLER, axis_name, compressor, algorithm, bucket_bytes, specs, seed, reducer
    )._replace(merge=merge)
    step = outer_step(exchange, optax.sgd(1.0))
    return local_steps(exchange, sync_every, step.init, step.update)
