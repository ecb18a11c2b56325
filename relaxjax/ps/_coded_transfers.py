"""Pushes and pulls in codes, with feedback at the workers and at the servers.

Source: Tang et al. 2019 (DoubleSqueeze), with an optimizer at the server: what comes
back is the update u, and not the mean gradient. C is a compressor; worker i owes e_i
and server s owes r_s, both 0 at the start:

    push:   p_i = g_i + e_i,   server s receives C(p_i[s]),   e_i = p_i - C(p_i)
            q_s = mean over i of C(p_i[s]), its own as it is
    serve:  u_s = the optimizer's update for q_s
    pull:   v_s = u_s + r_s,   all receive C(v_s),   r_s = v_s - C(v_s)

    sum of q + mean of e = sum of the mean of g;   sum of pulled + r = sum of u

The optimizer stands between the two, so that the residual of the workers is in units of
gradients, and that of the servers in units of updates.

Cost: 2 (k - 1) P(c) bytes per worker, with P(c) the bytes of c elements' payload.
State: a residual like the params at the worker, and one of a slice at the server.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import EQUAL, SHARD
from relaxjax._core._random import key_words
from relaxjax._core._tree import wide
from relaxjax._core.layouts._state_specs import OfLeaves
from relaxjax.collectives import (
    Codec,
    Kind,
    LeafTransfer,
    gather,
    in_turn,
    message,
    opened,
    places,
    scattered,
    whole,
)
from relaxjax.compression import Compressor, fed_back, require_compressor
from relaxjax.gradients import as_codec, step_keys
from relaxjax.ps._servers import Servers

# Feedbacks that hand on what has arrived; others correct an estimate that both ends
# keep, or a momentum, and a server's update is neither.
PULLED = ("none", "error_feedback", "loco")


class CodedState(NamedTuple):
    """What is owed, and the randomness.

    Attributes:
      workers: feedback state of each leaf, like the params.
      servers: feedback state of this server's slice of each leaf.
      words: uint32[2], the key of a random compressor, equal on all workers; else ().
    """

    workers: OfLeaves
    servers: Annotated[OfLeaves, SHARD]
    words: Annotated[Any, EQUAL]


def check_compressor(caller: str, compressor: Compressor | None) -> None:
    """Refuses what is not a compressor (TypeError) or cannot do pulls (ValueError)."""
    require_compressor(caller, "compressor", compressor)
    if compressor is not None and compressor.feedback.name not in PULLED:
        raise ValueError(
            f"{caller}: {compressor.name} with {compressor.feedback.name} cannot do "
            "pulls: a server sends its optimizer's updates, which are not gradients to "
            "be estimated or given a momentum. Use "
            "compression.error_feedback, compression.loco, or no feedback"
        )


def require_full(caller: str, servers: Servers) -> None:
    """Requires every worker to be a server of its own, as codes cannot be added."""
    if servers.number != servers.workers or servers.others:
        raise ValueError(
            f"{caller}: compressor= with servers={servers.number} on "
            f"{servers.workers} workers"
            + (f" and further axes {servers.others}" if servers.others else "")
            + ": a server that several workers stand for would have to add up codes. "
            "Leave servers=None, on one axis, or send without a compressor"
        )


def init_coded(
    compressor: Compressor, leaves: Sequence[Any], own: Sequence[Any], seed: int
) -> CodedState:
    """The first state, from whole leaves and this server's slices of them."""
    feedback = compressor.feedback
    return CodedState(
        OfLeaves(feedback.init(x) for x in leaves),
        OfLeaves(feedback.init(x) for x in own),
        key_words(seed) if compressor.random else (),
    )


def coded_transfers(
    servers: Servers,
    plan: Sequence[LeafTransfer],
    compressor: Compressor,
    state: CodedState,
    axis_name: AxisName,
) -> tuple["CodedTransfers", CodedState]:
    """One step's transfers, and the state with the randomness of the next step."""
    keys, words = step_keys(compressor, state.words, axis_name)
    transfers = CodedTransfers(servers, plan, compressor, keys)
    return transfers, state._replace(words=words)


class CodedTransfers(NamedTuple):
    """One step's transfers, in codes.

    Attributes:
      servers: the servers and their slices; there are as many as workers.
      plan: transfers in the order of pulls.
      compressor: the compressor, with its feedback.
      keys: the randomness of this step, from `relaxjax.gradients.step_keys`.
    """

    servers: Servers
    plan: Sequence[LeafTransfer]
    compressor: Compressor
    keys: Any

    def push(
        self, leaves: Sequence[jax.Array], owed: CodedState
    ) -> tuple[list[jax.Array], CodedState]:
        """The mean of this server's slice of each leaf, [c], and what is then owed."""
        name, k = self.servers.name, self.servers.number

        def exchange(chunks: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
            codec = self._codec(number)
            mean, lost = scattered(codec, chunks, name, places(0, k))
            nothing = jnp.zeros_like(mean)  # its own slice does not travel
            mine = lax.axis_index(name)
            return mean[None], lax.dynamic_update_index_in_dim(lost, nothing, mine, 0)

        sent = self._before(leaves, owed.workers)
        rows = [self.servers.rows(p) for p in sent]
        arrived = in_turn(self.plan[::-1], "push", rows, exchange, results=2)
        kinds = [Kind(p.shape, p.dtype) for p in sent]
        lost = [whole(x, kind) for (_, x), kind in zip(arrived, kinds, strict=True)]
        pairs = zip(arrived, leaves, strict=True)
        means = [mean[0].astype(x.dtype) for (mean, _), x in pairs]
        workers = self._after(leaves, sent, lost, owed.workers)
        return means, owed._replace(workers=workers)

    def pull(
        self, own: Sequence[jax.Array], kinds: Sequence[Kind], owed: CodedState
    ) -> tuple[list[jax.Array], CodedState]:
        """All leaves as decoded, whole, and what is then owed."""
        name, k = self.servers.name, self.servers.number

        def exchange(rows: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
            (v,), codec, down = rows, self._codec(number), places(k, k)
            mine = down[lax.axis_index(name)]
            encoded = message(codec, v, mine)
            decode = jax.vmap(lambda bits, place: opened(codec, bits, v.size, place))
            lost = v - codec.decode(encoded.payload, v.size, mine)
            return decode(gather(encoded.bits, name), down), lost[None]

        sent = self._before(own, owed.servers)
        rows = [x[None] for x in sent]
        arrived = in_turn(self.plan, "pull", rows, exchange, results=2)
        lost = [x[0] for _, x in arrived]
        pairs = zip(arrived, kinds, strict=True)
        leaves = [whole(x, kind).astype(kind.dtype) for (x, _), kind in pairs]
        return leaves, owed._replace(servers=self._after(own, sent, lost, owed.servers))

    def _codec(self, number: int) -> Codec:
        return as_codec(self.compressor, self.keys, jnp.uint32(number))

    def _before(self, xs: Sequence[jax.Array], owed: Sequence[Any]) -> list[jax.Array]:
        before = self.compressor.feedback.before
        pairs = zip(map(_wide, xs), owed, strict=True)
        return [before(x, state).astype(jnp.float32) for x, state in pairs]

    def _after(
        self,
        xs: Sequence[jax.Array],
        sent: Sequence[jax.Array],
        lost: Sequence[jax.Array],
        owed: Sequence[Any],
    ) -> OfLeaves:
        feedback = self.compressor.feedback
        each = zip(map(_wide, xs), sent, lost, owed, strict=True)
        return OfLeaves(fed_back(feedback, x, p, e, p - e, s)[1] for x, p, e, s in each)


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(wide(x.dtype))
