"""What the rules of feedback share: where they add up, and their factors."""

from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._dtypes import wide


def zeros_for(x: Any) -> jax.Array:
    """Zeros like x, float32 or wider: a narrow buffer would lose what it is there for.

    Float32 costs twice the bytes of a 16-bit gradient.
    """
    return jnp.zeros_like(x, dtype=wide(x.dtype))


def check_share(value: float, name: str, caller: str) -> None:
    """Raises ValueError unless in (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(f"{caller}: {name}={value} must be in (0, 1]")


def check_momentum(value: float, caller: str) -> None:
    """Raises ValueError unless in [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(
            f"{caller}: momentum={value} must be in [0, 1); 0 is none, 0.9 is usual"
        )
