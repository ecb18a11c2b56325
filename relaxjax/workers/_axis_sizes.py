"""Axes that an emulation may have."""

import math
from collections.abc import Mapping

import numpy as np

from relaxjax._core._axis import axes_of
from relaxjax._core.foreign._ranges import WORKERS


def require_axes(shape: Mapping[str, int]) -> None:
    """Refuses axes that no emulation can have.

    Raises:
      TypeError, ValueError: not the names of axes.
      ValueError: no axis, a size below 1, or too many workers.
    """
    for name, size in shape.items():
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise ValueError(
                f"emulate: axis {name!r} has size {size!r}; it must be a whole number "
                "of workers, 1 or more"
            )
    if not shape:
        raise ValueError("emulate: no axis given; say emulate(8) or a mapping of sizes")
    if (workers := math.prod(shape.values())) not in WORKERS:
        raise ValueError(f"emulate: {workers} workers; there must be {WORKERS.rule}")
    axes_of(tuple(shape))
