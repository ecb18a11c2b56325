"""Push-sum over links that lose messages, and nothing of what they carried.

Source: Hadjicostis, Vaidya, Dominguez-Garcia 2016 (running sums), around the push-sum
of `relaxjax.push_sum`. A message carries the sum of all that its worker ever gave away,
and who hears it takes what is new since it last heard; so what is lost is late. With
shares P, m the mass w or an element of x, and q the whole multiples of r in it:

    m_j <- m_j - (1 - P_jj) r q_j,   s_j <- s_j + q_j                    (what j gives)
    m_i <- m_i + sum_j P_ij r (s_j - h_ij),   h_ij <- s_j        (over what i hears)
    z_i <- x_i / w_i

    sum_i m_i + sum_ij P_ij r (s_j - h_ij) is what it was: what is there and under way

s and h are whole numbers of 32 bits that wrap around: they stay exact for ever, where
a running sum in float32 gets coarser with each round, as long as what is under way on a
link is below 2^31 r. What is no multiple of r stays with its worker, so that z is exact
to some r / w. Without loss this is `push_sum`, to that.

A worker that hears nothing gives its mass away all the same: after k rounds it has
P_ii^k of it, and its own updates, which are added to x, move z by 1 / w times as much.

Cost: of `push_sum`. State: a copy of the params, one for each link that comes in, and a
number for each.
"""

import functools
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName
from relaxjax._core._cond import cond
from relaxjax._core._merge_rules import EQUAL, RESET
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
)
from relaxjax.faults import FaultSchedule, fault_schedule
from relaxjax.topology import Topology

_CALLER = "lossy_push_sum"
_MOST = 2.0**31 - 128  # the largest float32 that is an int32


class LossyPushSumState(NamedTuple):
    """What `lossy_push_sum` keeps; sums are in units of `resolution`.

    For another number of workers the links are others: all begin anew, from the mean.

    Attributes:
      mass: w_i, float32.
      sent: s_i, int32, a pair: like the params, and of the mass.
      heard: h_ij for each message (`topology.messages()`), like `sent`.
      round: int32, counted around; equal on all workers.
    """

    mass: Annotated[jax.Array, RESET]
    sent: Annotated[Any, RESET]
    heard: Annotated[Any, RESET]
    round: Annotated[jax.Array, EQUAL]


def lossy_push_sum(
    axis_name: AxisName,
    topology: Topology,
    loss: Any,
    *,
    resolution: float = 2.0**-22,
    every: int = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Averages models over a graph whose messages get lost, by chance or by a table.

    An emulated fault, and the method that bears it. Put it last in the chain, as
    `gossip`. The params are z.

    Args:
      axis_name: the workers' axis.
      topology: as of `push_sum`, of one round, in which each worker keeps a share.
      loss: the probability that a message is lost, in [0, 1], drawn for each round and
        link; or bools or 0 and 1 [period, n, n], where entry (i, j) is whether that
        from j to i is, as in `topology.matrix()`.
      resolution: r, in the params' unit.
      every: steps that a round takes; all but the last send nothing.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.
      seed: of the draws.

    Returns:
      A gradient transformation, as of `gossip`.

    Raises:
      TypeError: as of `gossip`; two axes.
      ValueError: as of `push_sum`; a `loss` that is neither, `resolution <= 0`, a
        topology of several rounds or with a zero on its diagonal.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.lossy_push_sum("data", relaxjax.topology.ring(3), loss=0.3)
      >>> def round(carry, _):
      ...     z, state = carry
      ...     updates, state = tx.update(jnp.zeros(()), state, z)
      ...     return (z + updates, state), None
      >>> def mean(z):
      ...     return jax.lax.scan(round, (z, tx.init(z)), length=40)[0][0]
      >>> values = jnp.array([1.0, 2.0, 6.0])
      >>> print(jax.jit(jax.vmap(mean, axis_name="data"))(values).round(4))
      [3. 3. 3.]
    """
    both = None if specs is None else (specs, P())
    mixing = gossip_spec(
        _CALLER, axis_name, topology, every, bucket_bytes, both, doubly=False
    )
    _check(mixing, resolution)
    draws = fault_schedule(_CALLER, "loss", loss, (topology.n, topology.n), seed)

    def start(params: optax.Params) -> Any:
        def nothing() -> Any:
            zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.int32), params)
            return zeros, jnp.zeros((), jnp.int32)

        heard = [nothing() for _ in topology.messages()]
        one, first = jnp.ones((), jnp.float32), jnp.zeros((), jnp.int32)
        return LossyPushSumState(one, nothing(), heard, first)

    def rule(updates: Any, params: Any, kept: Any, step: jax.Array) -> Any:
        z, u = as_float32(mixing, params, updates)
        w, due = kept.mass, mixing.due(step)
        had = (jax.tree.map(lambda z, u: w * z + u, z, u), w)
        mixing.require(had)
        talk = functools.partial(_talk, mixing, resolution, _heard(draws, mixing, kept))
        trees = [had, kept.sent, *kept.heard]
        (x, w), sent, *heard = cond(due, talk, lambda trees: trees, trees)
        moved = jax.tree.map(lambda x, z: x / w.astype(x.dtype) - z, x, z)
        round = (kept.round + due) % draws.period
        return moved, LossyPushSumState(w, sent, heard, round)

    return gossip_transformation(mixing, start, rule)


def _talk(mixing: GossipSpec, r: float, hears: list[jax.Array], trees: Any) -> Any:
    """A round: of what there is, s and the h, to the same after it."""
    graph = mixing.topology
    mine = jnp.asarray(graph.matrix().diagonal(), jnp.float32)
    specs = [mixing.specs] * len(trees)

    def give(m: jax.Array, away: jax.Array) -> tuple[jax.Array, jax.Array]:
        q = jnp.trunc(jnp.clip(m / r, -_MOST, _MOST))  # never more than there is
        return m - away * r * q, q.astype(jnp.int32)

    def act(trees: Any, hears: list[jax.Array]) -> Any:
        had, sent, *heard = trees
        place = lax.axis_index(mixing.outer)
        leaves, tree = jax.tree.flatten(had)
        pairs = [give(m, 1 - mine[place]) for m in leaves]
        m, q = (tree.unflatten(part) for part in zip(*pairs, strict=True))
        sent = jax.tree.map(jnp.add, sent, q)
        for k, (links, weights) in enumerate(graph.messages()):
            told = _told(mixing, links, sent)
            now = jax.tree.map(functools.partial(jnp.where, hears[k]), told, heard[k])
            p = r * jnp.asarray(weights, jnp.float32)[place]
            m = jax.tree.map(lambda m, s, h, p=p: m + p * (s - h), m, now, heard[k])
            heard[k] = now
        return [m, sent, *heard]

    return on_own_shards(act, trees, specs, _CALLER, hears)


def _told(mixing: GossipSpec, links: Any, sent: Any) -> Any:
    """The sums of who sends to this worker."""

    def exchange(flat: jax.Array, bucket: jax.Array) -> tuple[jax.Array]:
        del bucket
        return (neighbor_message(flat, mixing.outer, links),)

    (told,) = in_buckets(mixing, sent, exchange)
    return told


def _heard(
    draws: FaultSchedule, mixing: GossipSpec, kept: LossyPushSumState
) -> list[jax.Array]:
    """bool[] for each message: whether this worker hears it in this round."""
    place, found = lax.axis_index(mixing.outer), []
    for links, _ in mixing.topology.messages():
        source = np.zeros(mixing.topology.n, np.int32)
        for a, b in links:
            source[b] = a
        found.append(~draws.at(kept.round, place, jnp.asarray(source)[place]))
    return found


def _check(mixing: GossipSpec, resolution: float) -> None:
    require_one_axis(mixing)
    require_one_round(mixing, "what is heard on a link")
    if (worst := mixing.topology.matrix().diagonal().min()) <= 0:
        raise ValueError(
            f"{_CALLER}: a worker of the topology {mixing.topology.name!r} keeps a "
            f"share of {worst:g} and is left with no mass where nothing comes; use "
            "relaxjax.topology.lazy, or shares with a diagonal above 0"
        )
    if not resolution > 0:
        raise ValueError(
            f"{_CALLER}: resolution={resolution!r} must be above 0, in the params' "
            "unit; 2**-22 takes values below 512"
        )
