"""RelaySum: on a tree, messages add up what they pass, and all hear of all.

Source: Vogels et al. 2021 (RelaySum, in its form for models). Neighbours in a tree are
N(i); worker i's optimizer's update is u_i, and nothing has been heard at the start:

    h_i = x_i + u_i
    m_ij = h_i + sum_{k in N(i), k != j} m_ki     (sent to j; m_ki of the last round)
    x_i = ((n - c_i) h_i + sum_j m_ji) / n

c_i is how many others the m_ji hold: after r rounds those up to r links away, so that
it is known and need not travel. After as many rounds as the tree's diameter every x_i
is the mean of a model of each worker, as old as it is far away: each counts 1 / n,
however unlike their data are.

What is old has had fewer updates: where all updates are alike, models go u / (1 + a) a
step, with a the mean over all pairs of how much older than one's own a model is when it
counts (links - 1, and 0 of one's own). Learning rates want to be that much higher.

Cost: 4 d bytes to each neighbour: on a chain and on a binary tree what a ring
all-reduce sends, or half more, but nothing waits for what is behind the neighbours.
State: what each neighbour said, each of the params' size, in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from relaxjax._core._axis import AxisName
from relaxjax._core._cond import cond
from relaxjax._core._merge_rules import RESET
from relaxjax._core._sharding import on_own_shards
from relaxjax.collectives import neighbor_message
from relaxjax.decentralized._round import (
    GossipSpec,
    as_float32,
    gossip_spec,
    gossip_transformation,
    in_buckets,
    require_one_axis,
    require_one_round,
    zeros_like,
)
from relaxjax.topology import Topology

_CALLER = "relay_sum"


class RelaySumState(NamedTuple):
    """What `relay_sum` keeps.

    Attributes:
      heard: m_ji of each message's sender, float32, like the params; 0 where there is
        none.
      rounds: int32, that have been; no more are counted than the tree's diameter.
    """

    heard: Annotated[list[Any], RESET]
    rounds: Annotated[jax.Array, RESET]


class _Relay(NamedTuple):
    """A tree as numbers.

    Attributes:
      others: bool[messages, n, messages]: whether in message s worker i passes on what
        it heard in message r.
      counts: float64[diameter + 1, n]: c_i after so many rounds.
    """

    others: np.ndarray
    counts: np.ndarray


def relay_sum(
    axis_name: AxisName,
    topology: Topology,
    *,
    every: int = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Gives each worker the mean of all models, those far away being older.

    Put it last in the chain, as `gossip`.

    Args:
      axis_name: the workers' axis.
      topology: a tree, such as `relaxjax.topology.chain(8)` or `binary_tree(8)`; of its
        weights only the links count.
      every: steps that a round takes; all but the last send nothing.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as of `gossip`.

    Raises:
      TypeError: as of `gossip`.
      ValueError: a topology that is no tree; else as of `gossip`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.relay_sum("data", relaxjax.topology.chain(3))
      >>> def two_rounds(x):
      ...     state = tx.init(x)
      ...     for _ in range(2):  # nobody's model moves but by what it hears
      ...         moved, state = tx.update(jnp.zeros(()), state, x)
      ...     return x + moved
      >>> print(jax.vmap(two_rounds, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [3. 3. 3.]
    """
    mixing = gossip_spec(
        _CALLER, axis_name, topology, every, bucket_bytes, specs, doubly=False
    )
    require_one_axis(mixing)
    relay = _relay_of(mixing)

    def start(params: optax.Params) -> Any:
        heard = [zeros_like(params) for _ in topology.messages()]
        return RelaySumState(heard, jnp.zeros((), jnp.int32))

    def rule(updates: Any, params: Any, kept: Any, step: jax.Array) -> Any:
        x, u = as_float32(mixing, params, updates)
        h = jax.tree.map(jnp.add, x, u)
        due = mixing.due(step)
        heard = _heard(mixing, relay, [h, *kept.heard], due)
        rounds = jnp.minimum(kept.rounds + due, len(relay.counts) - 1)
        c = jnp.asarray(relay.counts, jnp.float32)[rounds]
        c = c[lax.axis_index(mixing.outer)]

        def moved(u: jax.Array, h: jax.Array, *m: jax.Array) -> jax.Array:
            return u + jnp.where(due, (sum(m) - c * h) / topology.n, 0)

        return jax.tree.map(moved, u, h, *heard), RelaySumState(heard, rounds)

    return gossip_transformation(mixing, start, rule)


def _heard(mixing: GossipSpec, relay: _Relay, known: list[Any], due: Any) -> Any:
    """The m_ji of this step, where a round is due; else those there are.

    `known` is h, and the m_ji of the last round.
    """
    mixing.require(known)

    def talk(known: list[Any]) -> list[Any]:
        place = lax.axis_index(mixing.outer)
        told = [_sum_of(known, jnp.asarray(others)[place]) for others in relay.others]
        return [known[0], *(_sent(mixing, s, m) for s, m in enumerate(told))]

    def act(known: list[Any]) -> list[Any]:
        specs = [mixing.specs] * len(known)
        return on_own_shards(talk, known, specs, _CALLER)

    return cond(due, act, lambda known: known, known)[1:]


def _sum_of(known: list[Any], others: jax.Array) -> Any:
    """h, and of what was heard that which is not the target's own: bool[messages]."""

    def passed(h: jax.Array, *heard: jax.Array) -> jax.Array:
        return h + sum(jnp.where(others[r], m, 0) for r, m in enumerate(heard))

    return jax.tree.map(passed, *known)


def _sent(mixing: GossipSpec, number: int, told: Any) -> Any:
    """What arrives of a message."""
    pairs, _ = mixing.topology.messages()[number]

    def exchange(flat: jax.Array, bucket: jax.Array) -> tuple[jax.Array]:
        del bucket
        return (neighbor_message(flat, mixing.outer, pairs),)

    (arrived,) = in_buckets(mixing, told, exchange)
    return arrived


def _relay_of(mixing: GossipSpec) -> _Relay:
    """The tree's numbers.

    Raises:
      ValueError: it is no tree.
    """
    graph = mixing.topology
    require_one_round(mixing, "what is passed on")
    n, links = graph.n, graph.matrix() != 0
    near, counts = np.eye(n, dtype=bool), [np.zeros(n)]
    while (farther := near | (near @ links)).sum() > near.sum():
        near = farther
        counts.append(near.sum(axis=1) - 1.0)
    if (links != links.T).any() or np.triu(links, 1).sum() != n - 1 or not near.all():
        raise ValueError(
            f"{_CALLER}: the topology {graph.name!r} is no tree: its links must be "
            f"undirected, {n - 1} for {n} workers, and join them all, as those of "
            "relaxjax.topology.chain, binary_tree and star do"
        )
    messages = graph.messages()
    source, target = (np.full((len(messages), n), -1) for _ in range(2))
    for s, (pairs, _) in enumerate(messages):
        for a, b in pairs:
            source[s, b], target[s, a] = a, b
    return _Relay(target[:, :, None] != source.T, np.stack(counts))
