"""RelaySum: on a tree, messages add up what they pass on, and all hear of all.

Source: Vogels et al. 2021 (RelaySum, in its form for models). With N(i) the neighbors
of worker i in the tree, u_i its optimizer's update, and m = 0 at the start:

    h_i = x_i + u_i
    m_ij = h_i + sum_{k in N(i), k != j} m_ki     (sent to j; m_ki of the last round)
    x_i = ((n - c_i) h_i + sum_j m_ji) / n

c_i is the number of other workers whose models the m_ji hold: after r rounds those up
to r links away, so that it is known and need not travel. After as many rounds as the
tree's diameter every x_i is the mean of a model of each worker, as old as it is far
away: each counts 1 / n, however different their data are.

Old models have had fewer updates: where all updates are alike, models move u / (1 + a)
a step, with a the mean over all pairs of how much older than a worker's own a model is
when it counts (links - 1, and 0 for its own). Learning rates should be that much
higher.

Cost: 4 d bytes to each neighbor: on a chain and on a binary tree what a ring all-reduce
sends, or half more, but nobody waits for workers beyond the neighbors. State: the
message of each neighbor, each of the params' size, in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from relaxjax._core._axis import AxisName
from relaxjax._core._cond import when
from relaxjax._core._merge_rules import RESET
from relaxjax._core._tree import widened
from relaxjax._core.layouts._sharding import on_own_shards
from relaxjax.decentralized._round import GossipSpec, gossip_transformation
from relaxjax.decentralized._spec import gossip_spec, require_fixed
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "relay_sum"


class RelaySumState(NamedTuple):
    """State of `relay_sum`.

    Attributes:
      heard: m_ji from each message's sender, float32, like the params; 0 where no
        worker sends.
      rounds: int32, the number of rounds so far, at most the tree's diameter.
    """

    heard: Annotated[list[Any], RESET]
    rounds: Annotated[jax.Array, RESET]


class _Relay(NamedTuple):
    """A tree as numbers.

    Attributes:
      passes: bool[messages, n, messages]: entry (s, i, r) is whether worker i passes on
        in message s what it heard in message r.
      counts: float64[diameter + 1, n]: entry (r, i) is c_i after r rounds.
    """

    passes: np.ndarray
    counts: np.ndarray


def relay_sum(
    axis_name: AxisName,
    topology: Topology,
    *,
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Gives each worker the mean of all models, those far away being older.

    Experimental: this may change in any release.

    Put it last in the chain, like `gossip`.

    Args:
      axis_name: the workers' axis.
      topology: a tree, such as `relaxjax.topology.chain(8)` or `binary_tree(8)`; only
        its links count, not their weights.
      every: the number of steps that a round takes; only the last one sends. Or a
        schedule of `relaxjax.periods`, which is asked after each round.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as in `gossip`.

    Raises:
      TypeError: what `gossip` refuses.
      ValueError: a topology that is not a tree; what `gossip` refuses.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.relay_sum("data", relaxjax.topology.chain(3))
      >>> def two_rounds(x):
      ...     state = tx.init(x)
      ...     for _ in range(2):  # models move only by what they hear
      ...         moved, state = tx.update(jnp.zeros(()), state, x)
      ...     return x + moved
      >>> print(jax.vmap(two_rounds, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [3. 3. 3.]
    """
    how: Any = {"doubly": False, "mixes": False}
    spec = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs, **how)
    require_fixed(spec, "what is passed on")
    relay = _relay_of(spec)

    def start(params: optax.Params) -> Any:
        heard = [optax.tree.zeros_like(widened(params)) for _ in topology.messages()]
        return RelaySumState(heard, jnp.zeros((), jnp.int32))

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        x, u = spec.as_float32(params, updates)
        h = jax.tree.map(jnp.add, x, u)
        due = spec.is_round_due(step)
        heard = _relayed(spec, relay, [h, *memory.heard], due)
        rounds = memory.rounds + jnp.asarray(due, jnp.int32)
        rounds = jnp.minimum(rounds, len(relay.counts) - 1)
        c = jnp.asarray(relay.counts, jnp.float32)[rounds]
        c = c[lax.axis_index(spec.outer)]

        def moved(u: jax.Array, h: jax.Array, *m: jax.Array) -> jax.Array:
            return u + jnp.where(due, (sum(m) - c * h) / topology.n, 0)

        return jax.tree.map(moved, u, h, *heard), RelaySumState(heard, rounds)

    return gossip_transformation(spec, start, rule)


def _relayed(spec: GossipSpec, relay: _Relay, known: list[Any], due: Any) -> Any:
    """The next m_ji, where a round is due, from `known`: h, and the last m_ji."""
    spec.require(known)

    def exchange(known: list[Any]) -> list[Any]:
        place = lax.axis_index(spec.outer)
        sums = [_sum_of(known, jnp.asarray(passes)[place]) for passes in relay.passes]
        messages = zip(sums, spec.topology.messages(), strict=True)
        return [known[0], *(spec.received(m, pairs) for m, (pairs, _) in messages)]

    def communicate(known: list[Any]) -> list[Any]:
        return on_own_shards(exchange, known, [spec.specs] * len(known), _CALLER)

    return when(due, communicate, known)[1:]


def _sum_of(known: list[Any], passes: jax.Array) -> Any:
    """h and those m_ji that a message passes on, bool[messages]."""

    def add(h: jax.Array, *heard: jax.Array) -> jax.Array:
        return h + sum(jnp.where(passes[r], m, 0) for r, m in enumerate(heard))

    return jax.tree.map(add, *known)


def _relay_of(spec: GossipSpec) -> _Relay:
    """The topology's numbers; raises ValueError if it is not a tree."""
    graph = spec.topology
    n, links = graph.n, graph.matrix() != 0
    near, counts = np.eye(n, dtype=bool), [np.zeros(n)]
    while (farther := near | (near @ links)).sum() > near.sum():
        near = farther
        counts.append(near.sum(axis=1) - 1.0)
    if (links != links.T).any() or np.triu(links, 1).sum() != n - 1 or not near.all():
        raise ValueError(
            f"{_CALLER}: the topology {graph.name!r} is not a tree: its links must be "
            f"undirected, {n - 1} for {n} workers, and join them all, as those of "
            "relaxjax.topology.chain, binary_tree and star do"
        )
    messages = graph.messages()
    source, target = (np.full((len(messages), n), -1) for _ in range(2))
    for s, (pairs, _) in enumerate(messages):
        for a, b in pairs:
            source[s, b], target[s, a] = a, b
    return _Relay(target[:, :, None] != source.T, np.stack(counts))
