"""The gradient noise scale: for how many rows a step would have to be larger.

Source: McCandlish et al. 2018 (arXiv:1812.06162), from gradients of b rows on each of n
workers, and their mean, which is one of B = n b rows:

    |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b)
    S     = (|g_b|^2 - |g_B|^2) / (1/b - 1/B)

with |g_b|^2 the mean over workers. Both are without bias, and B_simple = S / |G|^2 is
the scale, in rows. |G|^2 may come out below 0 in a single step: take the ratio of means
over many steps, not the mean of ratios.

Cost: one float is sent.
"""

from typing import Any

import jax
from jax import lax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_whole
from relaxjax.controllers._readings import square

_CALLER = "controllers.noise_scale"


def noise_scale(
    own: Any, mean: Any, axis_name: AxisName, rows: int
) -> tuple[jax.Array, jax.Array]:
    """The squared length of the true gradient, and the noise of one row.

    Args:
      own: this worker's gradient, a mean over its rows.
      mean: the mean over the workers, a tree alike.
      axis_name: the axis, or a tuple of axes, of two workers or more.
      rows: b, the rows of a worker, as many on each.

    Returns:
      Signal and noise, two float32[], equal on all workers. Average each over steps;
      noise over signal is the noise scale, in rows.

    Raises:
      ValueError: `rows < 1`, or a single worker.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.controllers import noise_scale
      >>> def read(g):
      ...     return noise_scale(g, jax.lax.pmean(g, "data"), "data", rows=8)
      >>> g = jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, -1.0], [1.0, 0.0]])
      >>> signal, noise = jax.vmap(read, axis_name="data")(g)
      >>> print(f"{signal[0]:.4f} {noise[0]:.4f} {noise[0] / signal[0]:.1f}")
      0.8333 5.3333 6.4
    """
    n = axis_size(axis_name, _CALLER)
    require_whole(_CALLER, "rows", rows)
    if n < 2:
        raise ValueError(
            f"{_CALLER}: axis {axis_name!r} has one worker, whose gradient is the mean "
            "itself: nothing tells noise from signal; take two workers or more"
        )
    few, many = lax.pmean(square(own), axis_name), square(mean)
    return (n * many - few) / (n - 1), rows * n * (few - many) / (n - 1)
