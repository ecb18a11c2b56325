"""Which dtypes are narrow, and what they are computed in."""

from typing import Any

import jax
import jax.numpy as jnp


def is_narrow(dtype: jnp.dtype) -> bool:
    """Whether a dtype is a float of less than 32 bits."""
    return bool(jnp.issubdtype(dtype, jnp.floating)) and dtype.itemsize < 4


def wide(dtype: jnp.dtype) -> jnp.dtype:
    """The dtype for sums and means: at least float32 (8-bit floats do not promote)."""
    if is_narrow(dtype) or not jnp.issubdtype(dtype, jnp.inexact):
        return jnp.dtype(jnp.float32)
    return dtype


def wide_copy(tree: Any) -> Any:
    """A tree of its own, in `wide` dtypes: the one given may be donated to the step."""
    return jax.tree.map(lambda x: jnp.array(x, wide(x.dtype)), tree)


def is_key(x: jax.Array) -> bool:
    """Whether an array holds typed PRNG keys."""
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))
