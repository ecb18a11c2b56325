"""Which gradients travel together, and in which order: plans as plain data.

Small messages pay a latency each, so leaves are fused into buckets (Horovod's Tensor
Fusion, Sergeev and Del Balso 2018; the buckets of PyTorch DDP, Li et al. 2020); many
buckets rather than one let the first transfers start while the backward pass still
runs, in the order in which gradients appear.

Cost: a plan moves no byte more than its leaves hold.

Which leaves leave first: those whose transfers the backward pass can hide.

Source: Wang et al. 2023 (Espresso), who choose for each tensor whether it is
compressed: what is sent behind computation gains nothing from fewer bytes, and pays for
the code. Here the choice is one number, the share of the elements that travel first.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from relaxjax._core._tree import leaf_name, natural_key


class Segment(NamedTuple):
    """Elements `start:stop` of one leaf, flattened.

    Attributes:
      leaf: position of the leaf in the flattened tree.
      name: its key path, as in `"layers/0/kernel"`.
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
      segments: what it holds, in sending order.
    """

    dtype: str
    nbytes: int
    segments: tuple[Segment, ...]

    def __str__(self) -> str:
        """One line, for people."""
        parts = ", ".join(f"{s.name}[{s.start}:{s.stop}]" for s in self.segments)
        return f"{self.nbytes} bytes {self.dtype}: {parts}"


def sending_order(names: Sequence[str], order: Iterable[str] | None) -> list[int]:
    """Positions of the leaves in sending order.

    Args:
      names: the leaves' names, in tree order.
      order: the same names in the order in which gradients appear; None means the
        reversed natural order of the names, as later layers finish first.

    Raises:
      ValueError: if `order` misses, repeats or invents a leaf.
    """
    if order is None:
        return sorted(range(len(names)), key=lambda i: natural_key(names[i]))[::-1]
    order = list(order)
    missing = [name for name in names if name not in order]
    unknown = [name for name in order if name not in names]
    repeated = sorted({name for name in order if order.count(name) > 1})
    for fault, found in {
        "misses": missing,
        "repeats": repeated,
        "has unknown": unknown,
    }.items():
        if found:
            raise ValueError(
                f"order {fault} {'leaf' if len(found) == 1 else 'leaves'} {found}: it "
                f"must list each of the {len(names)} leaves once. Names are key paths "
                'such as "layers/0/kernel"; order=None sends in reversed natural order'
            )
    position = {name: i for i, name in enumerate(names)}
    return [position[name] for name in order]


def check_bucket_bytes(bucket_bytes: int) -> int:
    """Returns `bucket_bytes`, which must be a positive integer."""
    if not isinstance(bucket_bytes, int | np.integer) or bucket_bytes <= 0:
        raise ValueError(
            f"bucket_bytes={bucket_bytes!r} must be a positive number of bytes, such "
            "as 8 * 2**20; a small one sends each leaf by itself"
        )
    return int(bucket_bytes)


def plan_buckets(
    tree: Any,
    *,
    bucket_bytes: int = 8 * 2**20,
    order: Iterable[str] | None = None,
) -> tuple[Bucket, ...]:
    """Plans how the leaves of `tree` are packed into messages.

    Leaves are taken in order; a leaf larger than a bucket is split; a bucket holds one
    dtype and is closed when the next piece would overflow it. Empty leaves travel in
    no bucket.

    Args:
      tree: a pytree of arrays or `jax.ShapeDtypeStruct`.
      bucket_bytes: largest size of a bucket, in bytes.
      order: leaf names in sending order; see `sending_order`.

    Returns:
      The buckets, in sending order.

    Raises:
      ValueError: `bucket_bytes` is not positive, or `order` is not a permutation of
        the leaf names.

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
    open_bucket: dict[np.dtype, int] = {}  # the unfilled bucket of each dtype
    for segment, dtype in _pieces(tree, capacity, order):
        i = open_bucket.get(dtype)
        if i is None or _nbytes([*buckets[i], segment], dtype) > capacity:
            i = open_bucket[dtype] = len(buckets)
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
) -> tuple[Bucket, ...]:
    """Plans groups of whole leaves, for a transfer that need not copy them together.

    Like `plan_buckets`, but no leaf is split and a group may mix dtypes.

    Args:
      tree: a pytree of arrays or `jax.ShapeDtypeStruct`.
      bucket_bytes: size at which a group is closed, in bytes.
      order: leaf names in sending order; see `sending_order`.

    Returns:
      The groups, in sending order; empty leaves are in none.

    Raises:
      ValueError: as `plan_buckets`.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax.schedule import plan_groups
      >>> params = {"b": jnp.zeros(3), "w": jnp.zeros((2, 5))}
      >>> print(*plan_groups(params, bucket_bytes=24), sep="; ")
      40 bytes float32: w[0:10]; 12 bytes float32: b[0:3]
    """
    capacity = check_bucket_bytes(bucket_bytes)
    groups: list[list[tuple[Segment, np.dtype]]] = []
    filled = capacity
    for segment, dtype in _pieces(tree, math.inf, order):
        nbytes = _nbytes([segment], dtype)
        if filled + nbytes > capacity:
            groups.append([])
            filled = 0
        groups[-1].append((segment, dtype))
        filled += nbytes
    return tuple(map(_group, groups))


def _group(members: list[tuple[Segment, np.dtype]]) -> Bucket:
    names = {dtype.name for _, dtype in members}
    return Bucket(
        names.pop() if len(names) == 1 else "mixed",
        sum(_nbytes([segment], dtype) for segment, dtype in members),
        tuple(segment for segment, _ in members),
    )


def _pieces(tree: Any, capacity: float, order: Iterable[str] | None):
    """Segments of at most `capacity` bytes with their dtypes, in sending order."""
    paths_and_leaves = jax.tree.leaves_with_path(tree)
    names = [leaf_name(path) for path, _ in paths_and_leaves]
    for i in sending_order(names, order):
        aval = jax.typeof(paths_and_leaves[i][1])
        dtype = np.dtype(aval.dtype)
        step = max(1, int(min(capacity / dtype.itemsize, aval.size)))
        for start in range(0, aval.size, step):
            yield Segment(i, names[i], start, min(start + step, aval.size)), dtype


def _nbytes(segments: Iterable[Segment], dtype: np.dtype) -> int:
    return sum(segment.size for segment in segments) * dtype.itemsize


def sent_first(tree: Any, share: float, *, order: Iterable[str] | None = None) -> Any:
    """Marks the leaves that are wholly among the first `share` of all elements.

    Args:
      tree: a pytree of arrays or `jax.ShapeDtypeStruct`.
      share: of all elements, from 0 to 1.
      order: leaf names in sending order; None is the reversed natural order, as
        everywhere.

    Returns:
      A tree of bools like it, as labels of `optax.partition` for one.

    Raises:
      ValueError: `share` is not between 0 and 1, or `order` is not a permutation of the
        leaf names.

    Example:
      >>> import jax.numpy as jnp
      >>> from relaxjax.schedule import sent_first
      >>> params = {"layer1": jnp.zeros((4, 4)), "layer2": jnp.zeros((4, 4))}
      >>> sent_first(params, 0.5)
      {'layer1': False, 'layer2': True}
    """
    if not 0 <= share <= 1:
        raise ValueError(
            f"share={share!r} must be between 0 (none is sent first) and 1 (all are)"
        )
    before = sent_before(tree, order)
    leaves, shape = jax.tree.flatten(tree)
    sizes = [jax.typeof(x).size for x in leaves]
    most = share * sum(sizes)
    return shape.unflatten(
        start + size <= most for start, size in zip(before, sizes, strict=True)
    )


def sent_before(tree: Any, order: Iterable[str] | None = None) -> list[int]:
    """Elements that are sent before each leaf's, in tree order.

    Args:
      tree: as of `sent_first`.
      order: as of `sent_first`.
    """
    leaves = jax.tree.leaves_with_path(tree)
    before, sent = [0] * len(leaves), 0
    for place in sending_order([leaf_name(path) for path, _ in leaves], order):
        before[place] = sent
        sent += jax.typeof(leaves[place][1]).size
    return before
