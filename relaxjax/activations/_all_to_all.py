"""All-to-all: its transpose is itself, with splits and joins swapped.

Source: expert parallelism (Lepikhin et al. 2021): tokens travel to the workers that
hold their experts, and back; what a worker has for itself is encoded as well, so that a
token has the same value wherever its expert lies.

    y_i = (x_0[i], .., x_{n-1}[i])    g_{x_i} = (g_{y_0}[i], .., g_{y_{n-1}}[i])

Cost: (n - 1) messages of a part, each way.
"""

from typing import Any

import jax
from jax import lax

from relaxjax._core._axis import to_local
from relaxjax.activations._legs import exchanged
from relaxjax.activations._two_ways import (
    joined,
    parts_of,
    require_dimension,
    ways,
)
from relaxjax.collectives import landed, mapped
from relaxjax.compression import Compressor


def all_to_all(
    x: jax.Array,
    axis_name: str,
    split_axis: int,
    concat_axis: int,
    *,
    tiled: bool = False,
    forward: Compressor | None = None,
    backward: Compressor | None = None,
    key: Any = None,
) -> jax.Array:
    """Part j of `x` goes to worker j, and so do gradients back.

    Experimental: this may change in any release.

    Args:
      x: float[..., h]; blocks of codes run along the last dimension, within a part.
      axis_name: the axis.
      split_axis: the dimension of `x` that is shared out: n long; tiled, a multiple.
      concat_axis: the dimension of the result along which parts lie by their senders.
      tiled: whether dimensions are cut and joined, or taken away and new.
      forward: compressor of the forward pass, without feedback; None: as it is.
      backward: compressor of the gradient.
      key: for random compressors, equal on all workers: a seed or a `jax.random` key.

    Returns:
      Like `jax.lax.all_to_all`. Without codes it is that.

    Raises:
      TypeError: a compressor is not one; `axis_name` is not one axis.
      ValueError: `split_axis` cannot be shared out; there is no such `concat_axis`;
        feedback; a random compressor without a key; `x` is not real floats.
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import activations, compression
      >>> swap = lambda x: activations.all_to_all(
      ...     x, "expert", 0, 0, forward=compression.mx("e2m1"))
      >>> x = jnp.array([[[1.9], [3.0]], [[0.1], [4.0]]])
      >>> print(jax.vmap(swap, axis_name="expert")(x)[0].ravel())
      [2.      0.09375]
    """
    chosen = ways("all_to_all", x, axis_name, forward, backward, key)
    x, name = mapped(to_local(x, axis_name), axis_name), axis_name
    parts = parts_of("all_to_all", x, chosen.workers, split_axis, tiled)
    require_dimension("all_to_all", x, concat_axis, x.ndim)
    places = split_axis % x.ndim, concat_axis % x.ndim
    # JAX's own has no gradient under shard_map where the two differ (jax 0.12).
    if chosen.exact and (tiled or places[0] == places[1]):
        return landed(lax.all_to_all(x, name, *places, tiled=tiled), name)
    arrived = chosen.call(
        parts,
        lambda x, code: exchanged(x, name, code),
        lambda g, code: exchanged(g, name, code),
    )
    return joined(arrived, concat_axis, tiled)
