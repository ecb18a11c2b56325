"""The steps of a run after which workers meet, on the host."""

import jax
import numpy as np

from relaxjax._core._checks import require_whole
from relaxjax.periods._calendar import Period, calendar


def meetings(period: Period, steps: int) -> list[int]:
    """The numbers of steps after which workers meet, in a run of so many steps.

    Args:
      period: a number of steps, or a schedule, as for `sync_every`.
      steps: the length of the run.

    Returns:
      The meetings, by the number of steps before each: so the periods are their
      differences, and their number is that of exchanges.

    Raises:
      ValueError: `steps` or a whole number as a period is below 1; what `sync_every`
        refuses.

    Example:
      >>> import optax, relaxjax
      >>> rate = optax.cosine_decay_schedule(0.008, 100)
      >>> relaxjax.periods.meetings(relaxjax.periods.qsr(rate, 0.02, steps=100), 100)
      [6, 12, 18, 25, 33, 43, 59, 100]
    """
    require_whole("periods.meetings", "steps", steps)
    times = calendar("periods.meetings", "period", period)
    length = jax.jit(times.length)
    found, count = [], 0
    while (count := count + int(length(np.int32(count)))) <= steps:
        found.append(count)
    return found
