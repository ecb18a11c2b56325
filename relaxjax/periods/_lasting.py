"""A period that is decided between steps, on the host.

    next <- begun + H

right after a meeting, when the steps taken are those at which the period began. The
program stays as it is. A run of `relaxjax.periods.table` with the same decisions meets
at the same steps.

Cost: one addition for each counter.
"""

from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._checks import require_whole
from relaxjax.periods._calendar import LONGEST, Meetings

_CALLER = "periods.lasting"


def lasting(state: Any, steps: int) -> Any:
    """The state in which the period that has begun lasts so many steps.

    Call it after each meeting, with the level of a controller. Where it is called
    later, steps since the meeting count, and a period that is over ends with the next
    step.

    Args:
      state: any tree, with or without a worker axis. It holds the counters of a method
        whose period is a schedule; a number as one is `relaxjax.periods.table([8])`.
      steps: H; a multiple of the fragments, where these take turns. All processes give
        the same.

    Returns:
      The state with other counters.

    Raises:
      ValueError: `steps < 1`, or no counters of a schedule.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> from relaxjax import periods
      >>> tx = relaxjax.local_sgd("data", periods.table([8]))
      >>> state = tx.init(jnp.zeros(3))
      >>> print(periods.lasting(state, 4).step.next)
      4
    """
    require_whole(_CALLER, "steps", steps)
    found = []

    def until(x: Any) -> Any:
        if not isinstance(x, Meetings):
            return x
        found.append(x)
        left = jnp.iinfo(jnp.int32).max - x.begun
        return x._replace(next=x.begun + jnp.minimum(min(steps, LONGEST), left))

    changed = jax.tree.map(until, state, is_leaf=lambda x: isinstance(x, Meetings))
    if not found:
        raise ValueError(
            f"{_CALLER}: the state has no counters of a schedule: give the method one "
            "for its period, relaxjax.periods.table([8]) in place of 8"
        )
    return changed
