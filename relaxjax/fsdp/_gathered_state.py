"""What `gathered` keeps from step to step, in floats: a gradient carries it back."""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._merge_rules import EQUAL


class GatheredState(NamedTuple):
    """What a `Gathered` keeps from step to step, in floats, as a gradient carries it.

    Attributes:
      known: for differences, what was last communicated of each leaf, whole; else ().
      owed: feedback of each leaf's gradients, like the whole leaf; else ().
      draw: float32[2], layer and step, for random codes (after 2^24 steps they draw
        the same again); else ().
    """

    known: Any
    owed: Any
    draw: Annotated[Any, EQUAL]


def carried(state: Any) -> Any:
    """Integers of a feedback's state as floats that hold them exactly."""

    def to_float(x: jax.Array) -> jax.Array:
        if jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x.astype(jnp.bfloat16 if x.dtype.itemsize == 1 else jnp.float32)

    return jax.tree.map(to_float, state)


def restored(state: Any, like: Any) -> Any:
    """Inverse of `carried`."""
    return jax.tree.map(lambda x, kind: x.astype(kind.dtype), state, like)
