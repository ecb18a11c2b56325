"""All-gather and reduce-scatter: each is the other's transpose.

Source: sequence parallelism (Korthikanti et al. 2022): activations lie cut along the
tokens, are gathered in front of a product whose weights are cut, and scattered behind
it. Expert parallelism by gathering has the same two.

    all_gather       y = (x_0, .., x_{n-1})     g_{x_i} = sum over j of g_{y_j}[i]
    reduce_scatter   y_i = sum over j of x_j[i]  g_{x_j} = (g_{y_0}, .., g_{y_{n-1}})

Cost: `relaxjax.activations.sent_bytes`: (n - 1) messages of a part, each way.
"""

from typing import Any

import jax
from jax import lax

from relaxjax._core._axis import to_local
from relaxjax.activations._legs import gathered, scattered
from relaxjax.activations._two_ways import (
    joined,
    parts_of,
    require_dimension,
    ways,
)
from relaxjax.compression import Compressor


def all_gather(
    x: jax.Array,
    axis_name: str,
    *,
    axis: int = 0,
    tiled: bool = False,
    forward: Compressor | None = None,
    backward: Compressor | None = None,
    key: Any = None,
) -> jax.Array:
    """Every worker's `x`, with a gradient that is scattered.

    Experimental: this may change in any release.

    Args:
      x: float[..., h] of this worker; blocks of codes run along the last dimension.
      axis_name: the axis.
      axis: the new dimension of the result, or, tiled, the one that becomes n times as
        long.
      tiled: whether what is gathered is joined along `axis`.
      forward: compressor of the forward pass, without feedback; None: as it is.
      backward: compressor of the gradient, which is added up in float32.
      key: for random compressors, equal on all workers: a seed or a `jax.random` key.

    Returns:
      Like `jax.lax.all_gather`, the same bits on all workers. Without codes it is that.

    Raises:
      TypeError: a compressor is not one; `axis_name` is not one axis.
      ValueError: there is no such `axis`; feedback; a random compressor without a key;
        `x` is not real floats.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import activations, compression
      >>> gather = lambda x: activations.all_gather(
      ...     x, "model", tiled=True, forward=compression.mx("e2m1"))
      >>> print(jax.vmap(gather, axis_name="model")(jnp.array([[[1.9]], [[-5.2]]]))[0])
      [[ 2.]
       [-6.]]
    """
    chosen = ways("all_gather", x, axis_name, forward, backward, key)
    x, name = to_local(x, axis_name), axis_name
    require_dimension("all_gather", x, axis, x.ndim + (not tiled))
    if chosen.exact:
        return lax.all_gather(x, name, axis=axis, tiled=tiled)
    stacked = chosen.call(
        x,
        lambda x, code: gathered(x, name, code),
        lambda g, code: scattered(g, name, code),
    )
    return joined(stacked, axis, tiled)


def reduce_scatter(
    x: jax.Array,
    axis_name: str,
    *,
    scatter_dimension: int = 0,
    tiled: bool = False,
    forward: Compressor | None = None,
    backward: Compressor | None = None,
    key: Any = None,
) -> jax.Array:
    """This worker's part of the sum, with a gradient that is gathered.

    Experimental: this may change in any release.

    Args:
      x: float[..., h]; blocks of codes run along the last dimension, within a part.
      axis_name: the axis.
      scatter_dimension: the dimension of `x` that is shared out.
      tiled: whether it is cut into n parts, or is n long and taken away.
      forward: compressor of the parts, without feedback, which are added up in float32;
        this worker's own is not encoded.
      backward: compressor of the gradient.
      key: for random compressors, equal on all workers: a seed or a `jax.random` key.

    Returns:
      Like `jax.lax.psum_scatter`. Without codes it is that.

    Raises:
      TypeError: a compressor is not one; `axis_name` is not one axis.
      ValueError: `scatter_dimension` cannot be shared out; feedback; a random
        compressor without a key; `x` is not real floats.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import activations, compression
      >>> scatter = lambda x: activations.reduce_scatter(
      ...     x, "model", forward=compression.mx("e2m1"))
      >>> x = jnp.array([[[1.9], [3.0]], [[0.1], [4.0]]])
      >>> print(jax.vmap(scatter, axis_name="model")(x))
      [[1.99375]
       [7.     ]]
    """
    chosen = ways("reduce_scatter", x, axis_name, forward, backward, key)
    x, name = to_local(x, axis_name), axis_name
    parts = parts_of("reduce_scatter", x, chosen.workers, scatter_dimension, tiled)
    if chosen.exact:
        dimension = scatter_dimension % x.ndim
        return lax.psum_scatter(x, name, scatter_dimension=dimension, tiled=tiled)
    return chosen.call(
        parts,
        lambda x, code: scattered(x, name, code),
        lambda g, code: gathered(g, name, code),
    )
