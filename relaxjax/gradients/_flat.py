"""Arrays of any shape as one flat array, and back.

Cost: a copy each way.
"""

import jax
from jax import lax


def joined(arrays: list[jax.Array]) -> jax.Array:
    """The elements of arrays of one dtype, one array after the other.

    Args:
      arrays: one or more.
    """
    return lax.concatenate([x.ravel() for x in arrays], 0)


def parted(flat: jax.Array, like: list[jax.Array]) -> list[jax.Array]:
    """Inverse of `joined`.

    Args:
      flat: as many elements as all of `like` have.
      like: arrays of the shapes that come out.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax.gradients._flat import joined, parted
      >>> some = [jnp.ones((2, 3)), jnp.zeros(4)]
      >>> [x.shape for x in parted(joined(some), some)]
      [(2, 3), (4,)]
    """
    parts = lax.split(flat, [x.size for x in like])
    return [part.reshape(x.shape) for part, x in zip(parts, like, strict=True)]
