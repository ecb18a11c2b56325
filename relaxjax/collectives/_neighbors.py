"""One round of gossip: what a worker's neighbours pull it by, or tell it.

For worker i and the weights W of a round:

    c_i = sum_j W_ij (x_j - x_i) + (sum_j W_ij - 1) x_i        (so that x_i + c_i = W x)

The last term is there only where rows do not sum to 1. Equal values stay as they are,
to the bit.

Cost: d itemsize for each message of the busiest worker; as many at a time as it has
neighbours. Where several rounds take turns and no device is behind a worker
(`jax.vmap`), all of them would be computed to select one: there the values are
gathered, which costs nothing, and multiplied by a row of the round's matrix.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax._core._axis import on_devices
from relaxjax._core._cond import switch
from relaxjax.collectives._messages import Pairs, is_target, send
from relaxjax.collectives._payload import Codec, message, opened
from relaxjax.topology import Topology


def neighbor_change(
    x: jax.Array, name: str, topology: Topology, round: jax.Array | int
) -> jax.Array:
    """W x - x, of this worker.

    Args:
      x: floating array.
      name: the axis, of `topology.n` workers.
      topology: the weights.
      round: int32[], 0 .. period - 1, equal on all workers.

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
        return _by_messages(x, name, topology, 0)
    if not on_devices(name):
        return _by_matrices(x, name, topology, round)
    rounds = [
        lambda x, k=k: _by_messages(x, name, topology, k)
        for k in range(topology.period)
    ]
    return switch(round, rounds, x)


def neighbor_change_wire_bytes(
    x: jax.Array | jax.ShapeDtypeStruct, topology: Topology, round: int = 0
) -> int:
    """Bytes that the busiest worker sends in one round of an array like `x`.

    Args:
      x: an array or `jax.ShapeDtypeStruct`.
      topology: the weights.
      round: counted from 0.

    Returns:
      d itemsize for each that hears it.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> from relaxjax.collectives import neighbor_change_wire_bytes
      >>> x = jax.ShapeDtypeStruct((10,), jnp.float32)
      >>> neighbor_change_wire_bytes(x, relaxjax.topology.ring(8))
      80
    """
    links = (topology.matrix(round) != 0) & ~np.eye(topology.n, dtype=bool)
    return int(links.sum(axis=0).max()) * x.size * x.dtype.itemsize


def neighbor_payloads(
    x: jax.Array, name: str, topology: Topology, codec: Codec
) -> list[jax.Array]:
    """What `x` says, encoded, to its worker itself and to those that hear it.

    Args:
      x: float32[d].
      name: the axis, of `topology.n` workers.
      topology: of one round.
      codec: encodes and decodes; the sender decodes its own payload as well.

    Returns:
      float32[d] each: of this worker, then of the sender of each message
      (`topology.messages()`); zeros where none comes.
    """
    place = jnp.uint32(0)
    sent = message(codec, x, place)
    found = [codec.decode(sent.payload, x.size, place)]
    for pairs, _ in topology.messages():
        heard = opened(codec, send(sent.bits, name, pairs), x.size, place)
        found.append(jnp.where(is_target(name, pairs), heard, 0))
    return found


def neighbor_message(x: jax.Array, name: str, pairs: Pairs) -> jax.Array:
    """`x` of the worker that sends to this one; zeros where none does.

    Args:
      x: floating array.
      name: the axis.
      pairs: of source and target, each once at most.
    """
    return jnp.where(is_target(name, pairs), send(x, name, pairs), 0)


def _by_messages(x: jax.Array, name: str, topology: Topology, round: int) -> jax.Array:
    change = _times(topology.matrices[round].sum(axis=1) - 1, x, name)
    for pairs, weights in topology.messages(round):
        pull = send(x, name, pairs) - x
        mine = _own(weights, x, name)
        # Where nothing comes, what does is of no meaning, and may not be finite.
        pulled = jnp.where(mine == 0, 0, mine * pull)
        change = pulled if change is None else change + pulled
    return jnp.zeros_like(x) if change is None else change


def _by_matrices(
    x: jax.Array, name: str, topology: Topology, round: jax.Array | int
) -> jax.Array:
    others = lax.all_gather(x, name)
    row = jnp.asarray(topology.matrices - np.eye(topology.n), x.dtype)[round]
    row = row[lax.axis_index(name)]
    # As above: what is not heard may not be finite. What is heard may, and is NaN then.
    finite = jnp.isfinite(others)
    change = _product(row, jnp.where(finite, others, 0))
    lost = _product((row != 0).astype(x.dtype), (~finite).astype(x.dtype))
    return jnp.where(lost > 0, jnp.nan, change)


def _product(row: jax.Array, others: jax.Array) -> jax.Array:
    return jnp.tensordot(row, others, axes=1, precision=lax.Precision.HIGHEST)


def _own(values: np.ndarray, x: jax.Array, name: str) -> jax.Array:
    return jnp.asarray(values, x.dtype)[lax.axis_index(name)]


def _times(values: np.ndarray, x: jax.Array, name: str) -> jax.Array | None:
    """This worker's value times x; None where all are zero."""
    if np.abs(values).max() < 1e-12:
        return None
    return _own(values, x, name) * x
