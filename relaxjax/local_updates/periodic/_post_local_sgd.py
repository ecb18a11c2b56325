"""Post-local SGD: gradients are averaged at first, and models later.

Source: Lin et al. 2020. For the first s steps each worker takes the mean gradient, and
from then on its own, with a mean of the models every H steps:

    t < s:    g = mean_i(g_i),  x <- x + u(g)
    t >= s:   x_i <- x_i + u_i(g_i),  and after each H-th step x_i <- mean_j(x_j)

The optimizer goes through the switch with its state. As a chain of parts:
`before_step(all_reduce, s)`, the optimizer, `from_step(local_sgd, s)`; written so,
either may have a compressor, or DiLoCo may follow in place of local SGD.

Cost: that of `all_reduce` each step, then that of `local_sgd`. State: that of both.
"""

from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_transformation, require_whole
from relaxjax._core.traced._marks import whole_method
from relaxjax.gradients import all_reduce, before_step, from_step
from relaxjax.local_updates.periodic._local_sgd import local_sgd
from relaxjax.periods import Period, shifted


def post_local_sgd(
    optimizer: optax.GradientTransformation,
    axis_name: AxisName,
    sync_every: Period,
    start_step: int,
    *,
    algorithm: str = "auto",
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Data-parallel training that becomes local SGD.

    Use it as the whole optimizer.

    Args:
      optimizer: the optimizer, which sees the mean gradient, then each worker's own.
      axis_name: the axis, or a tuple (outer, inner).
      sync_every: H, the number of steps between two means in the second part; or a
        schedule of `relaxjax.periods` over all steps, with those of the first part.
      start_step: s, the number of steps of the first part, usually up to the first
        decay of the learning rate.
      algorithm: see `relaxjax.all_reduce`; in both parts.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.

    Returns:
      A gradient transformation whose `update` needs `params`. The switch is one of
      phases (`relaxjax.advance_phases`).

    Raises:
      ValueError: `sync_every < 1`, `start_step < 0`; what `relaxjax.local_sgd` refuses.
      NameError: `update` outside the axis.

    Example:
      >>> import optax, relaxjax
      >>> tx = relaxjax.post_local_sgd(optax.sgd(0.1, 0.9), "data", 16, 10_000)
    """
    require_transformation("post_local_sgd", "optimizer", optimizer)
    require_whole("post_local_sgd", "start_step", start_step, 0)
    how: Any = {"algorithm": algorithm, "bucket_bytes": bucket_bytes, "specs": specs}
    first = before_step(all_reduce(axis_name, **how), start_step)
    period = shifted(sync_every, start_step)
    then = from_step(local_sgd(axis_name, period, **how), start_step)
    return whole_method("post_local_sgd", first, optimizer, then)
