"""How the leaves of a bucket travel: grouped for `psum`, packed for everything else.

XLA would merge them all into one message after the backward pass. Groups for `psum`
carry a key each, which keeps them apart: a group leaves as soon as its gradients exist,
whatever the plan says. With `ordered`, and in packing algorithms, a bucket also waits
for the one before it, so that they leave in the order of the plan; where that is not
the order in which gradients appear, they wait for nothing (docs/transfers.md). Codes
without an order wait on CPU alone, where one message is under way at a time.

A group is one message to XLA, and many to a backend that sends operand by operand, as
gloo does between processes on CPU (600 bytes and a latency for each). So small leaves
of a group are packed as well, unless the compiler shards them, or workers are emulated,
which send nothing.

Cost: a group copies its small leaves, there and back. Packing takes two copies of a
bucket at a time: the packed array and its sum.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from relaxjax._core._axis import compiler_axes, varying
from relaxjax._core._buckets import Bucket
from relaxjax._core._pieces import cut, once_on_cpu, piece, starts_of
from relaxjax.collectives import after_on_cpu, all_after

SMALL = 2**16
"""Bytes of the largest leaf that is copied rather than sent by itself."""


def psum_groups(
    leaves: list[jax.Array],
    groups: tuple[Bucket, ...],
    total: Callable[[list[jax.Array]], list[jax.Array]],
    ordered: bool,
    small: int,
) -> list[jax.Array]:
    """One `total`, a psum, per group of leaves; if `ordered`, one after the other.

    Leaves of so many bytes, if they are `small`, travel in one operand; 0 where workers
    are emulated.
    """
    summed = [total([x])[0] if x.size == 0 else x for x in leaves]
    earlier: list[jax.Array] = []
    for number, group in enumerate(groups):
        positions = [segment.leaf for segment in group.segments]
        members = [_as_made(leaves[i]) if small else leaves[i] for i in positions]
        if ordered and earlier:
            members, _ = lax.optimization_barrier((members, earlier))
        merged = merge_small(members, small)
        alike = [[members[k] for k in few] for few in merged]
        operands = [pack(few) if len(few) > 1 else few[0] for few in alike]
        with set_xla_metadata(combiner_key=f"group {number}"), jax.named_scope("send"):
            earlier = total(operands)
        for few, like, x in zip(merged, alike, earlier, strict=True):
            parts = unpack(x, like) if len(few) > 1 else [x]
            for k, part in zip(few, parts, strict=True):
                summed[positions[k]] = part
    return summed


def merge_small(members: Sequence[Any], small: int = SMALL) -> list[list[int]]:
    """The positions, in a group of arrays or shapes, that share an operand of psum."""
    kinds: dict[Any, list[int]] = {}
    for i, x in enumerate(members):
        packs = x.size * x.dtype.itemsize <= small and not compiler_axes()
        kinds.setdefault((x.dtype, varying(x)) if packs else i, []).append(i)
    return list(kinds.values())


def _as_made(x: jax.Array) -> jax.Array:
    """The matrix x, whose product XLA on CPU leaves as JAX wrote it.

    The gradient of w in y @ w is a product, transposed. XLA would fold the
    transposition into the product, which is slower so where y has three axes.
    """
    return once_on_cpu(x.T).T if x.ndim == 2 else x


def map_buckets(
    leaves: list[jax.Array],
    buckets: tuple[Bucket, ...],
    exchange: Callable[[jax.Array, jax.Array], tuple[jax.Array, ...]],
    *,
    ordered: bool = True,
) -> list[list[jax.Array]]:
    """Packs each bucket into one flat array, exchanges it, and unpacks what comes out.

    `exchange` takes a flat array and the number of its bucket, uint32[], and returns a
    tuple of flat arrays of the same size. The next bucket waits for the first of them,
    if not `ordered` on CPU alone, and not where those vary over more axes, as slices of
    other leaves do. The result has a list like `leaves` for each entry of
    that tuple.
    """
    exchange = jax.named_scope("send")(jax.jit(exchange))  # a program for each size
    after = all_after if ordered else after_on_cpu
    pieces: dict[int, list[tuple[jax.Array, ...]]] = {i: [] for i in range(len(leaves))}
    out: tuple[jax.Array, ...] = ()
    for number, bucket in enumerate(buckets):
        starts = starts_of([s.size for s in bucket.segments])
        parts = [_slice(leaves[s.leaf], s.start, s.stop) for s in bucket.segments]
        flat = jnp.zeros(sum(x.size for x in parts), parts[0].dtype)
        # Who waits varies, by its type, wherever what it waits for does.
        waits = any(varying(y) <= varying(x) for y in out[:1] for x in parts)
        flat, *parts = after([flat, *parts], out[0] if out and waits else None)
        with jax.named_scope("pack"):
            for part, start in zip(parts, starts, strict=True):
                flat = lax.dynamic_update_slice(flat, part, (start,))
        out = exchange(flat, np.uint32(number))
        for s, start in zip(bucket.segments, starts, strict=True):
            pieces[s.leaf].append(tuple(piece(x, start, s.size) for x in out))

    def whole(i: int, x: jax.Array) -> list[jax.Array]:
        # An empty leaf is in no bucket.
        parts = zip(*(pieces[i] or [exchange(x.ravel(), np.uint32(0))]), strict=True)
        return [lax.concatenate(part, 0).reshape(x.shape) for part in parts]

    with jax.named_scope("unpack"):
        rows = [whole(i, x) for i, x in enumerate(leaves)]
    return [list(result) for result in zip(*rows, strict=True)]


def _slice(x: jax.Array, start: int, stop: int) -> jax.Array:
    return lax.slice(lax.reshape(x, (x.size,)), (start,), (stop,))


@jax.named_scope("pack")
def pack(arrays: list[jax.Array]) -> jax.Array:
    """The elements of one or more arrays of one dtype, one array after the other."""
    return lax.concatenate([x.ravel() for x in arrays], 0)


@jax.named_scope("unpack")
def unpack(flat: jax.Array, like: list[jax.Array]) -> list[jax.Array]:
    """Inverse of `pack`, in the shapes of `like`.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax.gradients.mean._packing import pack, unpack
      >>> arrays = [jnp.ones((2, 3)), jnp.zeros(4)]
      >>> [x.shape for x in unpack(pack(arrays), arrays)]
      [(2, 3), (4,)]
    """
    return cut(flat, [x.shape for x in like])
