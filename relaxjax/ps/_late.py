"""How late pushes are: not at all, by a bound, or by a table.

Source: Ho et al. 2013 (stale synchronous parallel): no worker is more than s steps
behind; Zheng et al. 2017 for the compensation (`relaxjax.dc_asgd`).

What a worker pushes at step t reaches the servers at step t + d, with d <= s drawn at
random or taken from a table, and is then d updates old. Nothing is lost and nothing
comes twice; each gradient keeps its weight.

Cost: see `relaxjax.bounded_staleness` and `relaxjax.dc_asgd`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import optax

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_known, require_whole
from relaxjax.gradients import (
    bounded_staleness,
    dc_asgd,
    random_delays,
    staleness_table,
)

Late = Callable[[], optax.GradientTransformationExtraArgs]
"""Makes the transformation that lets gradients wait; inside the axis."""


def late_pushes(
    caller: str, axis_name: AxisName, staleness: Any, compensation: float, seed: int
) -> Late | None:
    """Checks how late pushes are, and makes them late; None if none is ever late.

    `staleness` is the bound s of delays that `seed` draws, or a table [period, workers]
    of delays, and `compensation` lambda of `dc_asgd`, 0 for none.
    """
    is_table = np.ndim(staleness) > 0
    if is_table:
        staleness_table(caller, axis_name, staleness)
    else:
        require_whole(caller, "staleness", staleness, 0)
    require_known(caller, "compensation", compensation)
    if not compensation >= 0:
        raise ValueError(f"{caller}: compensation={compensation} must be 0 or more")
    if not is_table and staleness == 0:
        if compensation:
            raise ValueError(
                f"{caller}: compensation={compensation} with staleness=0: nothing is "
                "late; leave it out, or let pushes be late with staleness="
            )
        return None

    def late() -> optax.GradientTransformationExtraArgs:
        delays = staleness
        if not is_table:
            delays = random_delays(axis_size(axis_name, caller), staleness, seed=seed)
        if compensation:
            return dc_asgd(axis_name, delays, strength=compensation)
        return bounded_staleness(axis_name, delays)

    return late
