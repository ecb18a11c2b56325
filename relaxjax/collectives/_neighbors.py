"""One round of gossip: messages from neighbors, and the change that they make.

For worker i and the weights W of a round:

    c_i = sum_j W_ij (x_j - x_i) + (sum_j W_ij - 1) x_i        (so that x_i + c_i = W x)

The last term is there only where rows do not sum to 1. Equal values stay as they are,
to the bit.

Cost: d itemsize bytes for each message of the busiest worker; as many at a time as it
has neighbors. Where several rounds take turns and no device is behind a worker
(`jax.vmap`), all of them would be computed to select one: there a worker takes its
neighbors' values out of those of all, which are at hand, by a table of the rounds.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax._core._axis import on_devices
from relaxjax._core._cond import switch
from relaxjax.collectives.wire._messages import Pairs, is_target, landed, send
from relaxjax.collectives.wire._payload import Codec, message, opened
from relaxjax.topology import Topology, table_of


def neighbor_change(
    x: jax.Array, name: str, topology: Topology, round: jax.Array | int
) -> jax.Array:
    """This worker's row of W x - x.

    Args:
      x: a floating array.
      name: the axis, of `topology.n` workers.
      topology: the weights.
      round: int32[], number of the round, 0 .. period - 1, equal on all workers.

    Returns:
      An array like `x`.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> from relaxjax.collectives import neighbor_change
      >>> pairs = relaxjax.topology.one_peer_hypercube(2)
      >>> move = lambda x: x + neighbor_change(x, "data", pairs, 0)
      >>> print(jax.vmap(move, axis_name="data")(jnp.array([1.0, 5.0])))
      [3. 3.]
    """
    if topology.period == 1:
        return landed(_by_messages(x, name, topology, 0), name)
    if not on_devices(name):
        return landed(_by_table(x, name, topology, round), name)
    of = functools.partial(_by_messages, name=name, topology=topology)
    rounds = [functools.partial(of, round=k) for k in range(topology.period)]
    return switch(round, rounds, x)


def neighbor_change_wire_bytes(
    x: jax.Array | jax.ShapeDtypeStruct, topology: Topology, round: int = 0
) -> int:
    """Bytes that the busiest worker sends in one round of an array like `x`.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      topology: the weights.
      round: number of the round, counted from 0.

    Returns:
      d itemsize for each worker that receives it.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> from relaxjax.collectives import neighbor_change_wire_bytes
      >>> x = jax.ShapeDtypeStruct((10,), jnp.float32)
      >>> neighbor_change_wire_bytes(x, relaxjax.topology.ring(8))
      80
    """
    messages = topology.rounds[round % topology.period].degree()
    return messages * x.size * x.dtype.itemsize


def neighbor_payloads(
    x: jax.Array, name: str, topology: Topology, codec: Codec
) -> list[jax.Array]:
    """The decoded payloads of this worker and of its neighbors.

    Args:
      x: float32[d].
      name: the axis, of `topology.n` workers.
      topology: the links, of a single round.
      codec: the encoder and decoder; the sender decodes its own payload as well.

    Returns:
      float32[d] each: this worker's own, then that of the sender of each message
      (`topology.messages()`); zeros where no message arrives.
    """
    place = jnp.uint32(0)
    bits, payload = message(codec, x, place)
    decoded = [codec.decode(payload, x.size, place)]
    for pairs, _ in topology.messages():
        received = opened(codec, send(bits, name, pairs), x.size, place)
        decoded.append(landed(jnp.where(is_target(name, pairs), received, 0), name))
    return decoded


def neighbor_message(x: jax.Array, name: str, pairs: Pairs) -> jax.Array:
    """`x` of the worker that sends to this one; zeros where no worker does.

    Args:
      x: a floating array.
      name: the axis.
      pairs: pairs (source, target); a worker is each at most once.
    """
    return landed(jnp.where(is_target(name, pairs), send(x, name, pairs), 0), name)


def _by_messages(x: jax.Array, name: str, topology: Topology, round: int) -> jax.Array:
    def mine(values: np.ndarray) -> jax.Array:
        return jnp.asarray(values, x.dtype)[lax.axis_index(name)]

    surplus = topology.rounds[round].row_sums(topology.n) - 1
    changes = [mine(surplus) * x] if np.abs(surplus).max() >= 1e-12 else []
    for pairs, weights in topology.messages(round):
        changes.append(_pull(x, send(x, name, pairs), mine(weights)))
    return functools.reduce(jnp.add, changes) if changes else jnp.zeros_like(x)


def _by_table(
    x: jax.Array, name: str, topology: Topology, round: jax.Array | int
) -> jax.Array:
    def mine(values: np.ndarray, dtype: Any) -> jax.Array:
        return jnp.asarray(values, dtype)[round, ..., lax.axis_index(name)]

    everyone = lax.all_gather(x, name)
    surplus, sources, weights = table_of(topology)
    more = np.abs(surplus).max() >= 1e-12
    change = mine(surplus, x.dtype) * x if more else jnp.zeros_like(x)
    for k in range(sources.shape[1]):
        value = everyone[mine(sources[:, k], jnp.int32)]
        change += _pull(x, value, mine(weights[:, k], x.dtype))
    return change


def _pull(x: jax.Array, value: jax.Array, weight: jax.Array) -> jax.Array:
    """Where no message arrives, `value` has no meaning, and may not be finite."""
    return jnp.where(weight == 0, 0, weight * (value - x))
