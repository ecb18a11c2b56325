"""DiLoCo: many local steps, then one step of an outer optimizer along their mean.

Source: Douillard et al. 2023. Worker i takes H steps of its inner optimizer from the
common model a (its state goes on through it, and is not averaged):

    x_i <- x_i + u_i                      (each step)
    D = mean_i(a - x_i)                   (after each H-th: the outer gradient)
    v = mu v + D
    a = a - eta (D + mu v),  x_i = a      (Nesterov)

Any optax optimizer stands in either place. With the outer one SGD(1) this is local SGD;
with Muon inside MuLoCo (Therien et al. 2025); with a compressor of chunked top-k and
few bits, decayed feedback and outer SGD(1) SparseLoCo (Sarfi et al. 2025).

Cost: what `all_reduce` sends for the params in float32, once in H steps: 1 / H of a
gradient's all-reduce. State beside the inner optimizer's: the anchor a, the outer
momentum, and the feedback, each of the params' size.
"""

from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax.compression import Compressor
from relaxjax.local_updates._local_steps import local_steps
from relaxjax.local_updates._outer_step import outer_step


def diloco(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    sync_every: int,
    *,
    outer: optax.GradientTransformation | None = None,
    compressor: Compressor | None = None,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """An optimizer whose workers synchronise every `sync_every` steps, with momentum.

    Use it as the whole optimizer, without an all-reduce before it.

    Args:
      inner: each worker's optimizer, of its own gradients.
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, number of steps from one outer step to the next, 1 or more.
      outer: of the outer gradients; None is SGD with rate 0.7 and Nesterov momentum
        0.9. Its rate is none of the inner schedule's: it is not called in between.
      compressor: of `relaxjax.compression`, of the outer gradients.
      algorithm: as of `relaxjax.all_reduce`, which averages the outer gradients.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.
      seed: of random compressors.

    Returns:
      A gradient transformation whose `update` needs `params`: a chain of the inner
      optimizer and of the outer half. Updates come out in float32 where a param is
      narrower. In an outer step, `update` takes `weight=`, as of `local_sgd`.

    Raises:
      TypeError: in `init`: an outer optimizer that needs a loss or other arguments.
      ValueError: `sync_every < 1`; what `relaxjax.all_reduce` refuses; in `update`
        another tree than `init` saw, or no `params`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> tx = relaxjax.diloco(optax.sgd(1.0), "data", 2, outer=optax.sgd(0.5))
      >>> def train(gradient):
      ...     x = jnp.float32(0)
      ...     state = tx.init(x)
      ...     for _ in range(2):
      ...         updates, state = tx.update(gradient, state, x)
      ...         x = optax.apply_updates(x, updates)
      ...     return x
      >>> print(jax.vmap(train, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [-3. -3. -3.]
    """
    step = outer_step(
        "diloco", axis_name, outer, compressor, algorithm, bucket_bytes, seed, specs
    )
    return optax.with_extra_args_support(
        optax.chain(inner, local_steps(sync_every, step))
    )
