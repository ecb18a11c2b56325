"""What the rules of feedback share: where they add up, and their factors."""

from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._dtypes import wide


def zeros_for(x: Any) -> jax.Array:
    """Zeros like x, float32 or wider: a narrow buffer would lose what it is there for.

    Float32 costs twice the bytes of a 16-bit gradient.
    """
    return jnp.zeros_like(x, dtype=wide(x.dtype))
