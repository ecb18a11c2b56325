"""Post-local SGD: gradients are averaged at first, and models later.

Source: Lin et al. 2020. For a number of steps s each worker takes the mean gradient;
from then on its own, with a mean of the models every H steps:

    t < s:    g = mean_i(g_i),  x <- x + u(g)
    t >= s:   x_i <- x_i + u_i(g_i),  and after each H-th step x_i <- mean_j(x_j)

The optimizer goes through the switch with its state. As a chain of parts:
`before_step(all_reduce, s)`, the optimizer, `from_step(local_sgd, s)`; written so,
either may have a compressor, or DiLoCo follow in place of local SGD.

Cost: of `all_reduce` each step, then of `local_sgd`. State: of both.
"""

from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax.gradients import all_reduce, before_step, from_step
from relaxjax.local_updates._local_sgd import local_sgd


def post_local_sgd(
    optimizer: optax.GradientTransformation,
    axis_name: AxisName,
    sync_every: int,
    start_step: int,
    *,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Data-parallel training that becomes local SGD.

    Use it as the whole optimizer.

    Args:
      optimizer: of the mean gradient, then of each worker's own.
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, of the second part.
      start_step: s, steps of the first part; usual is the first decay of the learning
        rate.
      algorithm: as of `relaxjax.all_reduce`, in both parts.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.

    Returns:
      A gradient transformation whose `update` needs `params`. The switch is one of
      phases (`relaxjax.advance_phases`).

    Raises:
      ValueError: `sync_every < 1`, `start_step < 0`; else as of `relaxjax.local_sgd`.
      NameError: `update` outside the axis.

    Example:
      >>> import optax, relaxjax
      >>> tx = relaxjax.post_local_sgd(optax.sgd(0.1, 0.9), "data", 16, 10_000)
    """
    how: dict[str, Any] = {
        "algorithm": algorithm,
        "bucket_bytes": bucket_bytes,
        "specs": specs,
    }
    return optax.with_extra_args_support(
        optax.chain(
            before_step(all_reduce(axis_name, **how), start_step),
            optimizer,
            from_step(local_sgd(axis_name, sync_every, **how), start_step),
        )
    )
