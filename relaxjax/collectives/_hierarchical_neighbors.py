"""Gossip between hosts: each host mixes the mean of its devices with its neighbors.

Source: the hierarchical decentralized training of BAGUA (Gan et al. 2021), with its
rounds cut as in `hierarchical_all_reduce`. With h hosts of m devices, and x cut into m
chunks:

    inside:   reduce-scatter; device j of a host holds chunk j of the host's mean
    between:  c_i = sum_j W_ij (x_j - x_i) of chunk j, among the devices j
    inside:   all-gather

Over all devices this is a round with W (x) 11^T / m: doubly stochastic if W is, and its
other eigenvalues are 0.

Cost: inside a host 2 (m - 1) ceil(d / m) itemsize bytes; between hosts an m-th of
`neighbor_change`.
"""

import jax
from jax import lax

from relaxjax._core._axis import AxisName
from relaxjax.collectives._neighbors import neighbor_change, neighbor_change_wire_bytes
from relaxjax.collectives.exact._hierarchical import two_axes
from relaxjax.collectives.exact._two_shot import (
    gather_chunks,
    scatter_reduce,
    two_shot_wire_bytes,
)
from relaxjax.collectives.wire._messages import landed
from relaxjax.topology import Topology


def hierarchical_neighbor_change(
    x: jax.Array, axis_name: AxisName, topology: Topology, round: jax.Array | int
) -> jax.Array:
    """This device's row of W mean(x) - x, with the mean over each host.

    Args:
      x: a floating array.
      axis_name: (outer, inner): the axis of `topology.n` hosts, and that of devices.
      topology: the weights of the hosts.
      round: int32[], number of the round, 0 .. period - 1, equal on all devices.

    Returns:
      An array like `x`.

    Raises:
      ValueError: not two axes.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> from relaxjax.collectives import hierarchical_neighbor_change
      >>> pair, names = relaxjax.topology.complete(2), ("host", "device")
      >>> move = lambda x: x + hierarchical_neighbor_change(x, names, pair, 0)
      >>> move = jax.vmap(jax.vmap(move, axis_name="device"), axis_name="host")
      >>> print(move(jnp.array([[1.0, 3.0], [5.0, 7.0]])))
      [[4. 4.]
       [4. 4.]]
    """
    outer, inner = two_axes(axis_name, "hierarchical_neighbor_change")
    if x.size == 0:
        return x
    chunk = scatter_reduce(x, inner) / lax.axis_size(inner)
    chunk = chunk + neighbor_change(chunk, outer, topology, round)
    return landed(gather_chunks(chunk, inner, x) - x, inner)


def hierarchical_neighbor_wire_bytes(
    x: jax.Array | jax.ShapeDtypeStruct,
    topology: Topology,
    devices: int,
    round: int = 0,
) -> int:
    """Bytes that a device of the busiest host sends in one round, on both axes.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      topology: the weights of the hosts.
      devices: number of devices of a host, m.
      round: number of the round, counted from 0.

    Returns:
      2 (m - 1) ceil(d / m) itemsize, and the bytes of `neighbor_change` for a chunk.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> from relaxjax.collectives import hierarchical_neighbor_wire_bytes
      >>> x = jax.ShapeDtypeStruct((80,), jnp.float32)
      >>> hierarchical_neighbor_wire_bytes(x, relaxjax.topology.ring(4), 4)
      640
    """
    chunk = jax.ShapeDtypeStruct((-(-x.size // devices),), x.dtype)
    across = neighbor_change_wire_bytes(chunk, topology, round)
    return two_shot_wire_bytes(x, devices) + across
