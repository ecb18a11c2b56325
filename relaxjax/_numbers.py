"""Numbers that a user gives, refused where they are none."""

from typing import Any

import numpy as np
from jax.core import Tracer


def require_whole(caller: str, name: str, value: Any, least: int = 1) -> None:
    """Refuses what is no whole number, or one that is too small."""
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"{caller}: {name}={value!r} must be a whole number, {least} or more"
        )


def require_share(caller: str, name: str, value: Any) -> None:
    """Refuses numbers outside [0, 1); a traced one is taken as it is."""
    if not isinstance(value, Tracer) and not 0 <= value < 1:
        raise ValueError(f"{caller}: {name}={value!r} must be in [0, 1)")
