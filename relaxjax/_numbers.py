"""Numbers that a user gives, refused where they are none.

A traced number, as by `optax.inject_hyperparams`, is taken as it is.
"""

from typing import Any

import numpy as np
from jax.core import Tracer


def is_traced(number: Any) -> bool:
    """Whether its value is not known yet."""
    return isinstance(number, Tracer)


def require_whole(caller: str, name: str, value: Any, least: int = 1) -> None:
    """Refuses what is no whole number, or one that is too small."""
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"{caller}: {name}={value!r} must be a whole number, {least} or more"
        )


def require_share(caller: str, name: str, value: Any, remedy: str = "") -> None:
    """Refuses numbers outside (0, 1]."""
    if not is_traced(value) and not 0 < value <= 1:
        raise ValueError(f"{caller}: {name}={value} must be in (0, 1]{remedy}")


def require_momentum(caller: str, momentum: Any) -> None:
    """Refuses numbers outside [0, 1)."""
    if not is_traced(momentum) and not 0 <= momentum < 1:
        raise ValueError(
            f"{caller}: momentum={momentum} must be in [0, 1); 0 is none, 0.9 is usual"
        )
