"""A key of each worker's own, inside a step in which all hold the same key.

    k_i = fold_in(k, i)       i: the worker's index, counted along the axes

These are the keys that `relaxjax.to_workers(k, mesh)` gives.
"""

import jax
from jax import lax

from relaxjax._core._axis import AxisName, axes_of, axis_size


def worker_key(key: jax.Array, axis_name: AxisName) -> jax.Array:
    """This worker's own random key, from a key that all workers hold.

    A key made in the train step, from a seed or a step counter, is the same on all
    workers, and so are the masks of dropout drawn from it. Fold the worker in first.

    Args:
      key: a key or keys [...], typed or not (then uint32[2]).
      axis_name: the axis, or a tuple of axes with the outer one first.

    Returns:
      A key or keys like `key`.

    Raises:
      TypeError: `axis_name` is not an axis name.
      NameError: outside the axis.

    Example:
      >>> import jax, relaxjax
      >>> def mask(step):
      ...     key = jax.random.fold_in(jax.random.key(0), step)
      ...     key = relaxjax.worker_key(key, "data")
      ...     return jax.random.bernoulli(key, 0.5, (4,)).astype(int)
      >>> print(jax.vmap(mask, axis_name="data")(jax.numpy.array([7, 7])))
      [[1 1 1 0]
       [1 0 1 0]]
    """
    axis_size(axis_name, "worker_key")
    index = 0
    for name in axes_of(axis_name):  # one by one: `jax.vmap` takes no tuple
        index = index * lax.axis_size(name) + lax.axis_index(name)
    return fold_all(key, index)


def fold_all(keys: jax.Array, index: jax.Array | int) -> jax.Array:
    """Keys [...], typed or not, with a number folded into each."""
    typed = jax.numpy.issubdtype(keys.dtype, jax.dtypes.prng_key)
    flat = keys.ravel() if typed else keys.reshape(-1, keys.shape[-1])
    folded = jax.vmap(lambda key: jax.random.fold_in(key, index))(flat)
    return folded.reshape(keys.shape)
