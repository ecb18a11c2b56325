"""Which gradients travel together, and in which order: plans as plain data.

Small messages pay a latency each, so leaves are fused into buckets (Horovod's Tensor
Fusion, Sergeev and Del Balso 2018; the buckets of PyTorch DDP, Li et al. 2020); many
buckets rather than one let the first transfers start while the backward pass still
runs, in the order in which gradients appear.

Cost: a plan moves no byte more than its leaves hold.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from relaxjax._core._sending_order import check_bucket_bytes, in_order, marks_of


class Segment(NamedTuple):
    """Elements `start:stop` of one leaf, flattened.

    Attributes:
      leaf: position of the leaf in the flattened tree.
      name: key path of the leaf, as in `"layers/0/kernel"`.
      start: first element.
      stop: one past the last element.
    """

    leaf: int
    name: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.stop - self.start


class Bucket(NamedTuple):
    """Segments that travel as one message.

    Attributes:
      dtype: numpy dtype name of every segment, or `"mixed"`.
      nbytes: bytes of the bucket before any compression.
      segments: the contents, in sending order.
    """

    dtype: str
    nbytes: int
    segments: tuple[Segment, ...]

    def __str__(self) -> str:
        """One line, for people."""
        parts = ", ".join(f"{s.name}[{s.start}:{s.stop}]" for s in self.segments)
        return f"{self.nbytes} bytes {self.dtype}: {parts}"


def plan_buckets(
    tree: Any,
    *,
    bucket_bytes: int = 8 * 2**20,
    order: Iterable[str] | None = None,
    layouts: Sequence[Hashable] | None = None,
) -> tuple[Bucket, ...]:
    """Plans how the leaves of `tree` are packed into messages.

    Leaves are taken in order; a leaf larger than a bucket is split; a bucket holds one
    dtype and is closed when the next piece would overflow it. Empty leaves travel in
    no bucket.

    Args:
      tree: a pytree of arrays or `jax.ShapeDtypeStruct`.
      bucket_bytes: largest size of a bucket, in bytes.
      order: leaf names in sending order; None is their reversed natural order.
      layouts: for each leaf, in the tree's order, the axes over which it is sharded, or
        any mark; leaves of two layouts share no bucket. None: all are alike.

    Returns:
      The buckets, in sending order.

    Raises:
      ValueError: `bucket_bytes` is not positive, `order` is not a permutation of the
        leaf names, or `layouts` not as long as they are.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax.schedule import plan_buckets
      >>> params = {"b": jnp.zeros(3), "w": jnp.zeros((2, 5))}
      >>> for bucket in plan_buckets(params, bucket_bytes=24):
      ...     print(bucket)
      24 bytes float32: w[0:6]
      16 bytes float32: w[6:10]
      12 bytes float32: b[0:3]
    """
    capacity = check_bucket_bytes(bucket_bytes)
    buckets: list[list[Segment]] = []
    dtypes: list[np.dtype] = []
    marks = marks_of(tree, layouts)
    open_bucket: dict[Any, int] = {}  # the unfilled bucket of each dtype and layout
    for segment, dtype in _pieces(tree, capacity, order):
        kind = dtype, marks[segment.leaf]
        i = open_bucket.get(kind)
        if i is None or _nbytes([*buckets[i], segment], dtype) > capacity:
            i = open_bucket[kind] = len(buckets)
            buckets.append([])
            dtypes.append(dtype)
        buckets[i].append(segment)
    return tuple(
        Bucket(dtype.name, _nbytes(segments, dtype), tuple(segments))
        for segments, dtype in zip(buckets, dtypes, strict=True)
    )


def plan_groups(
    tree: Any,
    *,
    bucket_bytes: int = 8 * 2**20,
    order: Iterable[str] | None = None,
    layouts: Sequence[Hashable] | None = None,
) -> tuple[Bucket, ...]:
    """Plans groups of whole leaves, for transfers that need not pack them together.

    Like `plan_buckets`, but no leaf is split and a group may mix dtypes.

    Args:
      tree: a pytree of arrays or `jax.ShapeDtypeStruct`.
      bucket_bytes: size at which a group is closed, in bytes.
      order: leaf names in sending order; None is their reversed natural order.
      layouts: for each leaf, in the tree's order, the axes over which it is sharded, or
        any mark; leaves of two layouts share no group. None: all are alike.

    Returns:
      The groups, in sending order; empty leaves are in none.

    Raises:
      ValueError: `bucket_bytes` is not positive, `order` is not a permutation of the
        leaf names, or `layouts` not as long as they are.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax.schedule import plan_groups
      >>> params = {"b": jnp.zeros(3), "w": jnp.zeros((2, 5))}
      >>> print(*plan_groups(params, bucket_bytes=24), sep="; ")
      40 bytes float32: w[0:10]; 12 bytes float32: b[0:3]
    """
    capacity = check_bucket_bytes(bucket_bytes)
    groups: list[list[tuple[Segment, np.dtype]]] = []
    marks = marks_of(tree, layouts)
    filled: dict[Hashable, int] = {}  # bytes of the open group of each layout
    last: dict[Hashable, int] = {}
    for segment, dtype in _pieces(tree, math.inf, order):
        mark, nbytes = marks[segment.leaf], _nbytes([segment], dtype)
        if mark not in last or filled[mark] + nbytes > capacity:
            last[mark], filled[mark] = len(groups), 0
            groups.append([])
        groups[last[mark]].append((segment, dtype))
        filled[mark] += nbytes
    return tuple(map(_group, groups))


def _group(members: list[tuple[Segment, np.dtype]]) -> Bucket:
    dtypes = {dtype.name for _, dtype in members}
    return Bucket(
        dtypes.pop() if len(dtypes) == 1 else "mixed",
        sum(_nbytes([segment], dtype) for segment, dtype in members),
        tuple(segment for segment, _ in members),
    )


def _pieces(tree: Any, capacity: float, order: Iterable[str] | None):
    """Segments of at most `capacity` bytes with their dtypes, in sending order."""
    for i, name, aval in in_order(tree, order):
        dtype = np.dtype(aval.dtype)
        step = max(1, int(min(capacity / dtype.itemsize, aval.size)))
        for start in range(0, aval.size, step):
            yield Segment(i, name, start, min(start + step, aval.size)), dtype


def _nbytes(segments: Iterable[Segment], dtype: np.dtype) -> int:
    return sum(segment.size for segment in segments) * dtype.itemsize
