"""Hierarchical all-reduce over two axes: slow links carry a shard, fast ones the rest.

Source: the two-level scheme of Horovod's hierarchical all-reduce (Sergeev and Del Balso
2018) and BlueConnect (Cho et al. 2019).

With h hosts of m devices each, and x of d elements, cut into m chunks of ceil(d / m):

    inside:   reduce-scatter; device j of a host holds chunk j of the host's sum
    across:   all-reduce of chunk j over the hosts, among the devices j
    inside:   all-gather of the chunks

Cost per device, with c = ceil(d / m): inside a host 2 (m - 1) messages and 2 (m - 1) c
itemsize bytes in two rounds; across hosts 2 (h - 1) messages and 2 (h - 1) ceil(c / h)
itemsize bytes in two rounds (two-shot), an m-th of what a flat algorithm sends there.
"""

import jax

from relaxjax._core._axis import AxisName, axes_of, axis_size
from relaxjax.collectives.exact._two_shot import (
    gather_chunks,
    scatter_reduce,
    two_shot_all_reduce,
    two_shot_wire_bytes,
)
from relaxjax.collectives.wire._messages import nothing_to_send


def hierarchical_all_reduce(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """Sums `x` over two axes, of which the outer one carries only a share.

    All workers receive the same bits. 16-bit floats travel as 16 bits and are added in
    float32, rounded twice: inside a host, then across.

    Args:
      x: a numeric array of any shape, the same on all workers; it may be 0-d or empty.
      axis_name: two axes, the outer (slow) one first, as in `("host", "device")`.

    Returns:
      The sum, with the shape and dtype of `x`.

    Raises:
      ValueError: not two axes.
      NameError: outside the axes.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import hierarchical_all_reduce
      >>> x = jnp.arange(12.0).reshape(2, 2, 3)  # two hosts of two devices
      >>> f = lambda x: hierarchical_all_reduce(x, ("host", "device"))
      >>> f = jax.vmap(jax.vmap(f, axis_name="device"), axis_name="host")
      >>> print(f(x)[1, 0])
      [18. 22. 26.]
    """
    outer, inner = two_axes(axis_name, "hierarchical_all_reduce")
    axis_size(axis_name, "hierarchical_all_reduce")
    if x.size == 0:
        return nothing_to_send(nothing_to_send(x, inner), outer)
    chunk = two_shot_all_reduce(scatter_reduce(x, inner), outer)
    return gather_chunks(chunk, inner, x)


def hierarchical_wire_bytes(
    x: jax.Array | jax.ShapeDtypeStruct, axis_sizes: tuple[int, int]
) -> int:
    """Bytes that each worker sends in one `hierarchical_all_reduce`, on both axes.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      axis_sizes: number of hosts h and of devices per host m: (outer, inner).

    Returns:
      (2 (m - 1) c + 2 (h - 1) ceil(c / h)) itemsize, with c = ceil(d / m).

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax.collectives import hierarchical_wire_bytes
      >>> x = jax.ShapeDtypeStruct((80,), jnp.float32)
      >>> hierarchical_wire_bytes(x, (2, 4))
      560
    """
    hosts, devices = axis_sizes
    chunk = jax.ShapeDtypeStruct((-(-x.size // devices),), x.dtype)
    return two_shot_wire_bytes(x, devices) + two_shot_wire_bytes(chunk, hosts)


def two_axes(axis_name: AxisName, caller: str) -> tuple[str, str]:
    """The outer and the inner axis; an error names `caller` and the remedy."""
    names = axes_of(axis_name)
    if len(names) != 2:
        raise ValueError(
            f"{caller}: axis_name={axis_name!r} must be two axes, the outer (slow) one "
            "first, such as ('host', 'device'), of a mesh that has both; on one axis "
            "two_shot sends the same bytes"
        )
    return names[0], names[1]
