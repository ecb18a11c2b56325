"""Lossy push-sum: links lose messages, and nothing of what they carried.

Source: Hadjicostis, Vaidya, Dominguez-Garcia 2016 (running sums), around the push-sum
of `relaxjax.push_sum`. A message carries the sum of all that its worker ever gave away,
and a receiver takes what is new since it last heard; so what is lost is only late. With
shares P, m the mass w or an element of x, and q the whole multiples of r in it:

    m_j <- m_j - (1 - P_jj) r q_j,   s_j <- s_j + q_j               (what j gives away)
    m_i <- m_i + sum_j P_ij r (s_j - h_ij),   h_ij <- s_j        (over j that i hears)
    z_i <- x_i / w_i

    sum_i m_i + sum_ij P_ij r (s_j - h_ij) stays: what is there and what is under way

s and h are whole numbers of 32 bits that wrap around: they stay exact forever, where a
running sum in float32 gets coarser with each round, as long as what is under way on a
link is below 2^31 r. The rest of a division by r stays with its worker, so that z is
exact to some r / w. Without loss this is `push_sum`, to that accuracy.

A worker that hears nothing gives its mass away all the same: after k rounds it has
P_ii^k of it, and its own updates, which are added to x, move z by 1 / w times as much.

Cost: that of `push_sum`. State: a copy of the params, one more for each incoming link,
and a number for each.
"""

import functools
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

from relaxjax._core._arrays import require_dtypes
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import is_traced
from relaxjax._core._cond import when
from relaxjax._core._merge_rules import EQUAL, RESET
from relaxjax._core.layouts._sharding import on_own_shards
from relaxjax.decentralized._round import GossipSpec, gossip_transformation
from relaxjax.decentralized._spec import gossip_spec, require_fixed
from relaxjax.faults import FaultSchedule, fault_schedule
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "lossy_push_sum"
_MOST = 2.0**31 - 128  # the largest float32 that is an int32


class LossyPushSumState(NamedTuple):
    """State of `lossy_push_sum`; sums are in units of `resolution`.

    Another number of workers has other links: all begin anew, from the mean.

    Attributes:
      mass: w_i, float32.
      sent: s_i, int32, a pair: those of the params, and that of the mass.
      heard: h_ij for each message (`topology.messages()`), like `sent`.
      round: int32, the number of rounds, modulo the period of the losses.
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
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Averages models over a graph whose messages get lost, by chance or by a table.

    Experimental: this may change in any release.

    An emulated fault, and the method that bears it. Put it last in the chain, like
    `gossip`. The params are z.

    Args:
      axis_name: the workers' axis.
      topology: a topology as in `push_sum`, of one round, in which each worker keeps a
        share.
      loss: the probability that a message is lost, in [0, 1], drawn for each round and
        link; or bools or 0 and 1 [period, n, n], where entry (i, j) is whether the
        message from j to i is lost, indexed like `topology.matrix()`.
      resolution: r, in the params' unit.
      every: the number of steps that a round takes; only the last one sends. Or a
        schedule of `relaxjax.periods`, which is asked after each round.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of the draws.

    Returns:
      A gradient transformation, as in `gossip`.

    Raises:
      TypeError: what `gossip` refuses; two axes.
      ValueError: what `push_sum` refuses; complex params; a bad `loss`,
        `resolution <= 0`, a topology of several rounds or with a zero on its
        diagonal.
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
    spec = gossip_spec(
        _CALLER, axis_name, topology, every, bucket_bytes, both, doubly=False
    )
    _check(spec, resolution)
    draws = fault_schedule(_CALLER, "loss", loss, (topology.n, topology.n), seed)
    if draws.is_always(True):
        raise ValueError(
            f"{_CALLER}: loss={loss!r} loses every message, so that no worker would "
            "ever hear of another; take a probability below 1"
        )

    def start(params: optax.Params) -> Any:
        require_dtypes(params, _CALLER, "it")

        def zeros() -> Any:
            return optax.tree.zeros_like((params, jnp.zeros(())), jnp.int32)

        heard = [zeros() for _ in topology.messages()]
        one, first = jnp.ones((), jnp.float32), jnp.zeros((), jnp.int32)
        return LossyPushSumState(one, zeros(), heard, first)

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        z, u = spec.as_float32(params, updates)
        w, due = memory.mass, spec.is_round_due(step)
        before = (jax.tree.map(lambda z, u: w * z + u, z, u), w)
        spec.require(before)
        arrives = _arrives(draws, spec, memory.round)
        communicate = functools.partial(_communicate, spec, resolution, arrives)
        trees = [before, memory.sent, *memory.heard]
        (x, w), sent, *heard = when(due, communicate, trees)
        moved = jax.tree.map(lambda x, z: x / w.astype(x.dtype) - z, x, z)
        round = (memory.round + jnp.asarray(due, jnp.int32)) % draws.period
        return moved, LossyPushSumState(w, sent, heard, round)

    return gossip_transformation(spec, start, rule)


def _communicate(
    spec: GossipSpec, r: float, arrives: list[jax.Array], trees: list[Any]
) -> list[Any]:
    """A round: from m, s and the h of each message to the same after it."""
    keeps = jnp.asarray(spec.topology.matrix().diagonal(), jnp.float32)

    def give(m: jax.Array, away: jax.Array) -> tuple[jax.Array, jax.Array]:
        q = jnp.trunc(jnp.clip(m / r, -_MOST, _MOST))  # never more than there is
        return m - away * r * q, q.astype(jnp.int32)

    def exchange(trees: list[Any], arrives: list[jax.Array]) -> list[Any]:
        m, sent, *heard = trees
        place = lax.axis_index(spec.outer)
        leaves, tree = jax.tree.flatten(m)
        pairs = [give(leaf, 1 - keeps[place]) for leaf in leaves]
        m, q = (tree.unflatten(part) for part in zip(*pairs, strict=True))
        sent = jax.tree.map(jnp.add, sent, q)
        for k, (links, weights) in enumerate(spec.topology.messages()):
            now = optax.tree.where(arrives[k], spec.received(sent, links), heard[k])
            p = r * jnp.asarray(weights, jnp.float32)[place]
            m = jax.tree.map(
                lambda m, s, h, p=p: m + p * (s - h).astype(p.dtype), m, now, heard[k]
            )
            heard[k] = now
        return [m, sent, *heard]

    specs = [spec.specs] * len(trees)
    return on_own_shards(exchange, trees, specs, _CALLER, arrives)


def _arrives(
    draws: FaultSchedule, spec: GossipSpec, round: jax.Array
) -> list[jax.Array]:
    """bool[] for each message: whether it comes to this worker in this round."""
    place, arrives = lax.axis_index(spec.outer), []
    for links, _ in spec.topology.messages():
        source = np.zeros(spec.topology.n, np.int32)
        for a, b in links:
            source[b] = a
        arrives.append(~draws.at(round, place, jnp.asarray(source)[place]))
    return arrives


def _check(spec: GossipSpec, resolution: float) -> None:
    require_fixed(spec, "what is heard on a link")
    if (least := spec.topology.matrix().diagonal().min()) <= 0:
        raise ValueError(
            f"{_CALLER}: a worker of the topology {spec.topology.name!r} keeps a "
            f"share of {least:g} and is left with no mass where nothing comes; use "
            "relaxjax.topology.lazy, or shares with a diagonal above 0"
        )
    if not is_traced(resolution) and not resolution > 0:
        raise ValueError(
            f"{_CALLER}: resolution={resolution!r} must be above 0, in the params' "
            "unit; 2**-22 takes values below 512"
        )
