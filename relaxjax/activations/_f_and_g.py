"""All-reduce and copy: Megatron's g and f, each the other's transpose.

Source: tensor parallelism (Shoeybi et al. 2019): f stands in front of a product whose
weights are cut by columns, g behind one whose weights are cut by rows.

    all_reduce   g   y = sum over j of x_j    g_x = g_y
    copy         f   y = x                    g_x = sum over j of g_{y_j}

Sums in codes take two shots: rows are cut into n parts, parts travel to the worker that
adds them up in float32, and sums are encoded once more and gathered.

Where jax.shard_map tracks what varies (`check_vma=True`), these are `jax.lax.psum` and
`jax.lax.pcast`, and JAX transposes them alike. Without that JAX's own `psum` has the
sum as its gradient; here it has not, as in Megatron. So take the gradient inside of the
mapped function there, as a step of `relaxjax.data_parallel` does: outside of it, an
output without an axis arrives divided by n.

Cost: 2 (n - 1) messages of ceil(rows / n) rows, in one direction.
"""

from typing import Any

import jax

from relaxjax._core._axis import like_varying, to_local
from relaxjax.activations._legs import summed
from relaxjax.activations._two_ways import ways
from relaxjax.compression import Compressor


def all_reduce(
    x: jax.Array,
    axis_name: str,
    *,
    forward: Compressor | None = None,
    backward: Compressor | None = None,
    key: Any = None,
) -> jax.Array:
    """The sum over the workers, whose gradient is passed on as it is (Megatron's g).

    Experimental: this may change in any release.

    Args:
      x: float[..., h], a partial sum; blocks of codes run along the last dimension.
      axis_name: the axis.
      forward: compressor of both shots, without feedback; None: as it is.
      backward: nothing is sent backward, and this is not used; it is taken so that all
        collectives of a model may get the same two compressors.
      key: for random compressors, equal on all workers: a seed or a `jax.random` key.

    Returns:
      Like `x`, the same bits on all workers.

    Raises:
      TypeError: a compressor is not one; `axis_name` is not one axis.
      ValueError: feedback; a random compressor without a key; `x` is not real floats.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import activations, compression
      >>> code = compression.mx("e4m3")
      >>> total = lambda x: activations.all_reduce(x, "model", forward=code)
      >>> x = jnp.array([[[1.9, 0.3]], [[0.1, 0.3]]])
      >>> print(jax.vmap(total, axis_name="model")(x)[0])
      [[2.    0.625]]
    """
    chosen = ways("all_reduce", x, axis_name, forward, backward, key)
    return chosen.call(
        to_local(x, axis_name),
        lambda x, code: summed(x, axis_name, code),
        lambda g, code: to_local(g, axis_name),
    )


def copy(
    x: jax.Array,
    axis_name: str,
    *,
    forward: Compressor | None = None,
    backward: Compressor | None = None,
    key: Any = None,
) -> jax.Array:
    """The same `x`, whose gradient is summed over the workers (Megatron's f).

    Experimental: this may change in any release.

    Args:
      x: float[..., h], equal on all workers.
      axis_name: the axis.
      forward: nothing is sent forward, and this is not used; see `all_reduce`.
      backward: compressor of both shots of the gradient's sum; None: as it is.
      key: for random compressors, equal on all workers: a seed or a `jax.random` key.

    Returns:
      `x`, which varies over the axis where that is tracked.

    Raises:
      TypeError: a compressor is not one; `axis_name` is not one axis.
      ValueError: feedback; a random compressor without a key; `x` is not real floats.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import activations
      >>> def gradient(w, x):
      ...     return jax.grad(lambda x: w * activations.copy(x, "model"))(x)
      >>> print(jax.vmap(gradient, (0, None), axis_name="model")(jnp.arange(3.0), 1.0))
      [3. 3. 3.]
    """
    chosen = ways("copy", x, axis_name, forward, backward, key)
    like = jax.typeof(x)
    return chosen.call(
        x,
        lambda x, code: to_local(x, axis_name),
        lambda g, code: like_varying(summed(g, axis_name, code), like),
    )
