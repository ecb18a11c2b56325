"""Ordered transfers between workers and those that hold slices: servers, or they all.

    pull transfer by transfer, in order:        own slices of its leaves -> whole leaves
    push transfer by transfer, in reverse:      whole leaves -> mean of own slices

A transfer is a few leaves of one dtype, whose slices travel as one array. Each waits
until the one before has arrived (`relaxjax.collectives.once_arrived`), so that they
travel in order on every backend, and has a name, `pull a,b;` or `push a,b;`, in the
compiled program. What was pulled first is needed first, so its gradient appears last:
hence the pushes' order.

A loss of slices (`straight_through`) has the push for the transpose of its pull.

Cost: see `relaxjax.ps._servers`; a copy of what travels.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._buckets import plan_groups
from relaxjax._core._pieces import piece, starts_of
from relaxjax._core._sending_order import order_names, sending_order
from relaxjax._core._tree import is_narrow
from relaxjax._core.layouts._sharding import sharded_over
from relaxjax.collectives.wire._one_by_one import LeafTransfer, Slices, one_by_one

Kind = jax.ShapeDtypeStruct


def plan_transfers(
    tree: Any, order: Iterable[str] | None, bucket_bytes: int
) -> tuple[LeafTransfer, ...]:
    """Which leaves are pulled together, and in which order (None: as layers are used).

    Raises:
      ValueError: the order is not a permutation of the leaf names.
    """
    names = order_names(tree)
    places = sending_order(names, order)
    if order is None:
        places = places[::-1]
    ordered = [names[i] for i in places]
    layouts = sharded_over(tree)
    groups = plan_groups(
        tree, bucket_bytes=bucket_bytes, order=ordered, layouts=layouts
    )
    dtypes = [jax.typeof(x).dtype for x in jax.tree.leaves(tree)]
    plan = []
    for group in groups:
        members = [segment.leaf for segment in group.segments]
        for _, same in itertools.groupby(members, key=lambda i: dtypes[i]):
            leaves = tuple(same)
            plan.append(LeafTransfer(",".join(names[i] for i in leaves), leaves))
    return tuple(plan)


class ExactTransfers(NamedTuple):
    """One step's transfers, of what is sent as it is.

    Attributes:
      servers: the servers and their slices.
      plan: transfers in the order of pulls.
      divided: whether narrow floats are divided by the number of workers already.
    """

    servers: Slices
    plan: Sequence[LeafTransfer]
    divided: bool = False

    def push(
        self, leaves: Sequence[jax.Array], owed: Any = ()
    ) -> tuple[list[jax.Array], Any]:
        """The mean over the workers of this server's slice of each leaf, [c].

        `owed` belongs to transfers that lose something, and is handed on here.
        """

        def exchange(rows: jax.Array, number: int) -> tuple[jax.Array]:
            del number
            divided = self.divided and is_narrow(rows.dtype)
            return (self.servers.push(rows, divided=divided)[None],)

        rows = [self.servers.rows(x) for x in leaves]
        arrived = in_turn(self.plan[::-1], "push", rows, exchange)
        return [mean[0] for (mean,) in arrived], owed

    def pull(
        self, own: Sequence[jax.Array], kinds: Sequence[Kind], owed: Any = ()
    ) -> tuple[list[jax.Array], Any]:
        """All leaves, whole, of these kinds, from this server's slices [c]."""

        def exchange(rows: jax.Array, number: int) -> tuple[jax.Array]:
            del number
            return (self.servers.pull(rows[0]),)

        arrived = in_turn(self.plan, "pull", [x[None] for x in own], exchange)
        return [whole(x, kind) for (x,), kind in zip(arrived, kinds, strict=True)], owed


def whole(rows: jax.Array, kind: Kind) -> jax.Array:
    """The leaf whose slices [k, c] these are, in their dtype."""
    if not kind.size:  # has not travelled, and is the same everywhere
        return jnp.zeros(kind.shape, rows.dtype)
    flat = lax.slice(lax.reshape(rows, (rows.size,)), (0,), (kind.size,))
    return lax.reshape(flat, kind.shape)


def in_turn(
    plan: Sequence[LeafTransfer],
    verb: str,
    rows: Sequence[jax.Array],
    exchange: Callable[[jax.Array, int], tuple[jax.Array, ...]],
    results: int = 1,
) -> list[tuple[jax.Array, ...]]:
    """Runs an exchange for each transfer, whose leaves travel as one array.

    From a leaf's `rows` [r, c] to `results` arrays [.., c]; for empty leaves, which do
    not travel, the rows. `exchange` takes [r, sum of c] and the transfer's number to
    arrays [.., sum of c], of which the first ends what is sent.
    """
    out = one_by_one(
        plan, verb, rows, lambda xs, i: list(exchange(lax.concatenate(xs, 1), i))
    )
    parts = [(x,) * results for x in rows]
    for transfer, arrived in zip(plan, out, strict=True):
        sizes = [rows[i].shape[1] for i in transfer.leaves]
        cuts = zip(transfer.leaves, starts_of(sizes), sizes, strict=True)
        for i, start, size in cuts:
            parts[i] = tuple(piece(x, start, size) for x in arrived)
    return parts
