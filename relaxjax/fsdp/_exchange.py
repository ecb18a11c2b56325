"""One use of sharded leaves: fetched, opened, and their gradients scattered.

Source: ZeRO++ (Wang et al. 2023), SDP4Bit (Jia et al. 2024). With s_i worker i's slice,
C the code of weights, and W what all workers compute with:

    plain        fetch: nothing                     open: W = D(C(s_1)), .., D(C(s_n))
    secondary    fetch: codes, between hosts        open: the same, inside the host
    difference   fetch: V <- V + D(C(s_i - V_i))    open: W = V

`fetch` runs in the forward pass, and what it gives may be kept; `open` runs in both.
V is whole on every worker and the same bits, so each owner knows what others have: what
a code loses is in the next difference, and errors do not pile up.

Gradients: this worker's slice of their mean over all workers (`scatter_slices`), and
with feedback around their codes

    p = before(g, e),   e <- after(what of p was lost)

Cost: see `relaxjax.fsdp._bytes`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from relaxjax._core._axis import to_local
from relaxjax._core._random import fold, key_words
from relaxjax._core._tree import wide
from relaxjax.collectives import (
    Codec,
    Kind,
    LeafTransfer,
    chunks_of,
    gather,
    gather_slices,
    one_by_one,
    open_slices,
    scatter_slices,
    whole,
)
from relaxjax.compression import Compressor, fed_back
from relaxjax.fsdp._choices import Choices
from relaxjax.gradients import as_codec, step_keys

KEPT = "relaxjax.fsdp.secondary"
"""The name under which `jax.checkpoint` keeps the second copy."""


class Exchange(NamedTuple):
    """How the leaves of one tree travel in one step.

    Attributes:
      choices: what was asked for.
      plan: transfers in the order of gathers.
      kinds: shape and dtype of each whole leaf.
      number: the number of slices of each leaf.
      draw: float32[2], layer and step, for random compressors; else ().
    """

    choices: Choices
    plan: Sequence[LeafTransfer]
    kinds: Sequence[Kind]
    number: int
    draw: Any

    def fetch(self, own: Sequence[jax.Array], known: Sequence[jax.Array]) -> Any:
        """What the backward pass may keep, to `open` once more."""
        if self.choices.difference:
            return self._told(own, known)
        if self.choices.secondary is not None:
            return self._between_hosts(own)
        return list(own)

    def open(self, fetched: Any) -> list[jax.Array]:
        """The whole leaves, the same bits on all workers."""
        if self.choices.difference:
            pairs = zip(fetched, self.kinds, strict=True)
            return [x.astype(kind.dtype) for x, kind in pairs]
        if self.choices.secondary is not None:
            return self._inside_host(fetched)
        return self._leaves(self._gathered(fetched))

    def scatter(
        self, gradients: Sequence[jax.Array], owed: Sequence[Any]
    ) -> tuple[list[jax.Array], tuple[Any, ...]]:
        """This worker's slice of the mean of each leaf, [c], and what is then owed."""
        compressor, axes = self.choices.gradients, self.choices.axes
        if compressor is None:
            sent = list(gradients)
        else:
            before = compressor.feedback.before
            wider = [x.astype(wide(x.dtype)) for x in gradients]
            states = owed or [()] * len(wider)
            each = zip(wider, states, strict=True)
            sent = [before(x, e).astype(jnp.float32) for x, e in each]
        plan = self.plan[::-1]
        codecs = self._codecs(compressor, 1)

        def exchange(members: list[jax.Array], i: int) -> list[jax.Array]:
            mine = [codecs[leaf] for leaf in plan[i].leaves]
            means, lost = zip(*scatter_slices(mine, members, axes), strict=True)
            return [*means, *lost]

        rows = [chunks_of(x, self.number) for x in sent]
        arrived = one_by_one(plan, "push", rows, exchange)
        means = [jnp.zeros(x.shape[1:], x.dtype) for x in rows]
        lost = [jnp.zeros_like(x) for x in rows]
        for transfer, results in zip(plan, arrived, strict=True):
            k = len(transfer.leaves)
            for leaf, mean, missing in zip(
                transfer.leaves, results[:k], results[k:], strict=True
            ):
                means[leaf], lost[leaf] = mean, missing
        pairs = zip(means, self.kinds, strict=True)
        out = [x.astype(kind.dtype) for x, kind in pairs]
        if not owed:
            return out, ()
        assert compressor is not None
        after = []
        for g, p, missing, e in zip(gradients, sent, lost, owed, strict=True):
            missing = whole(missing, Kind(p.shape, p.dtype))
            g = g.astype(wide(g.dtype))
            after.append(
                fed_back(compressor.feedback, g, p, missing, p - missing, e)[1]
            )
        return out, tuple(after)

    def exactly(self, own: Sequence[jax.Array]) -> list[jax.Array]:
        """The whole leaves as they are, in float32 or wider."""
        rows = self._gathered(own, exact=True)
        pairs = zip(self._leaves(rows), self.kinds, strict=True)
        return [x.astype(wide(kind.dtype)) for x, kind in pairs]

    def _told(
        self, own: Sequence[jax.Array], known: Sequence[jax.Array]
    ) -> list[jax.Array]:
        place = lax.axis_index(self.choices.axes)
        changes = []
        for s, v in zip(own, known, strict=True):
            slices = chunks_of(v, self.number)
            mine = lax.dynamic_index_in_dim(slices, place, keepdims=False)
            changes.append(s.astype(v.dtype) - mine)
        told = self._gathered(changes)
        return [
            v + whole(rows, Kind(v.shape, v.dtype)).astype(v.dtype)
            for rows, v in zip(told, known, strict=True)
        ]

    def _gathered(
        self, own: Sequence[jax.Array], *, exact: bool = False
    ) -> list[jax.Array]:
        """[n, c]: all slices of each leaf."""
        codecs = self._codecs(None if exact else self.choices.weights, 0)
        axes = self.choices.axes

        def exchange(members: list[jax.Array], i: int) -> list[jax.Array]:
            mine = [codecs[leaf] for leaf in self.plan[i].leaves]
            place = lax.axis_index(axes).astype(jnp.uint32)
            bits = gather_slices(mine, members, axes, place)
            return self._opened(mine, bits, members)

        return self._by_leaf(own, one_by_one(self.plan, "pull", own, exchange))

    def _between_hosts(self, own: Sequence[jax.Array]) -> list[jax.Array]:
        """For each transfer, the messages of the workers in this place of all hosts."""
        codecs = self._codecs(self.choices.weights, 0)
        *outer, _ = self.choices.axes

        def exchange(members: list[jax.Array], i: int) -> list[jax.Array]:
            mine = [codecs[leaf] for leaf in self.plan[i].leaves]
            place = lax.axis_index(self.choices.axes).astype(jnp.uint32)
            return [gather_slices(mine, members, outer, place)]

        arrived = one_by_one(self.plan, "pull", own, exchange)
        return [checkpoint_name(bits, KEPT) for (bits,) in arrived]

    def _inside_host(self, fetched: Sequence[jax.Array]) -> list[jax.Array]:
        """All leaves, from the messages that this host's workers keep."""
        codecs = self._codecs(self.choices.weights, 0)
        slices = [
            jnp.zeros((-(-kind.size // self.number),), kind.dtype)
            for kind in self.kinds
        ]
        by_transfer = [LeafTransfer(t.name, (i,)) for i, t in enumerate(self.plan)]

        def exchange(members: list[jax.Array], i: int) -> list[jax.Array]:
            leaves = self.plan[i].leaves
            bits = gather(members[0], self.choices.axes[-1])
            mine = [codecs[leaf] for leaf in leaves]
            return self._opened(mine, bits, [slices[leaf] for leaf in leaves])

        arrived = one_by_one(by_transfer, "pull", fetched, exchange)
        return self._leaves(self._by_leaf(slices, arrived))

    def _opened(
        self,
        codecs: Sequence[Codec | None],
        bits: jax.Array,
        own: Sequence[jax.Array],
    ) -> list[jax.Array]:
        """[n, c] of each leaf, from bits [inner, .., outer, bits] in a transfer."""
        *axes, _ = range(bits.ndim)
        ordered = lax.transpose(bits, (*axes[::-1], bits.ndim - 1))
        ordered = ordered.reshape(self.number, -1)
        kinds = [Kind(x.shape, x.dtype) for x in own]
        return open_slices(codecs, ordered, kinds)

    def _by_leaf(
        self, own: Sequence[jax.Array], arrived: list[list[jax.Array]]
    ) -> list[jax.Array]:
        """Results of the transfers by leaf; empty leaves have not travelled."""
        rows = [jnp.zeros((self.number, x.size), x.dtype) for x in own]
        for transfer, results in zip(self.plan, arrived, strict=True):
            for leaf, x in zip(transfer.leaves, results, strict=True):
                rows[leaf] = x
        return rows

    def _leaves(self, rows: Sequence[jax.Array]) -> list[jax.Array]:
        pairs = zip(rows, self.kinds, strict=True)
        leaves = [whole(x, kind).astype(kind.dtype) for x, kind in pairs]
        return to_local(leaves, self.choices.axes)

    def _codecs(self, compressor: Compressor | None, which: int) -> list[Codec | None]:
        """The codec of each leaf: of weights (0) or of gradients (1)."""
        if compressor is None:
            return [None] * len(self.kinds)
        keys, leaves = self._keys(compressor, which), range(len(self.kinds))
        codecs = [as_codec(compressor, keys, jnp.uint32(i)) for i in leaves]
        outer = self.choices.across
        if which == 0 or outer is None:
            return list(codecs)
        keys = self._keys(outer, 2)[1:]
        further = [as_codec(outer, keys, jnp.uint32(i)) for i in leaves]
        pairs = zip(codecs, further, strict=True)
        return [codec._replace(outward=lambda x=x: x) for codec, x in pairs]

    def _keys(self, compressor: Compressor, which: int) -> tuple[Any, ...]:
        words = key_words(self.choices.seed)
        if compressor.random:
            layer, step = self.draw.astype(jnp.uint32)
            words = fold(fold(fold(words, layer), step), which)
        return step_keys(compressor, words, self.choices.axes)[0]
