"""Numbers that a user gives, refused where they are none."""

from typing import Any

import numpy as np


def require_whole(caller: str, name: str, value: Any, least: int = 1) -> None:
    """Refuses what is no whole number, or one that is too small."""
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"{caller}: {name}={value!r} must be a whole number, {least} or more"
        )
