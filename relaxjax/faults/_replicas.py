"""Whether workers that should hold the same values do, to the bit.

Two words for each leaf and worker, computed from its elements' bits b_1 .. b_d:

    sum over i of mix(b_i xor mix(i)) mod 2^32

Equal bits have equal words however they are sharded, as whole numbers add up in any
order; other bits have other words, except in one case of 2^64. NaNs equal NaNs of the
same bits, and -0.0 does not equal 0.0.

Cost: each device reads its own shard once; 8 bytes per leaf and worker are sent. Where
words differ, that leaf itself is compared.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes, lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._extremes import largest
from relaxjax._core._random import fold, hash_words, key_words
from relaxjax._core._tree import is_key, leaf_names
from relaxjax._core.foreign._switches import unswitched
from relaxjax._core.layouts._copies import all_copies, copied, untyped


class ReplicaDifference(NamedTuple):
    """The first leaf in which workers differ that should not, and the first worker.

    Attributes:
      leaf: name of the first leaf, in the tree's order, in which workers differ.
      worker: the first worker whose bits are not those of worker 0.
      elements: number of elements in which these two workers differ.
      size: number of elements of the leaf.
      largest: largest difference between the two, in the leaf's unit; 0.0 where only
        signs of zeros differ, NaN where a NaN does, or for keys.
      copy: which of the worker's copies it is: 0, but where the mesh has further axes
        that do not shard the leaf, and each device along them holds one.
    """

    leaf: str
    worker: int
    elements: int
    size: int
    largest: float
    copy: int = 0

    def __str__(self) -> str:
        """One sentence, for people."""
        which = f", copy {self.copy} along the mesh's other axes," if self.copy else ""
        return (
            f"leaf {self.leaf!r} of worker {self.worker}{which} is not that of worker "
            "0: "
            f"{self.elements} of {self.size} elements differ in their bits, by "
            f"{self.largest:.3g} at most"
        )


class ReplicaError(RuntimeError):
    """Workers that should hold the same values do not.

    Attributes:
      difference: the first leaf and worker that differ.
    """

    def __init__(self, what: str, difference: ReplicaDifference):
        """Names what was compared, such as "params", and the difference."""
        super().__init__(
            f"workers no longer hold the same {what}: {difference}. Look for "
            "randomness or data that differs by worker in what should be common, a "
            "collective over only some workers, or failing memory; and go on from the "
            "last checkpoint before it"
        )
        self.difference = difference


@unswitched()
def replica_difference(tree: Any) -> ReplicaDifference | None:
    """Where workers differ that should hold the same values; None if they do not.

    Of a leaf that the mesh's other axes do not shard, each device's copy is compared.

    All processes must call it together, and all get the same answer.

    Args:
      tree: worker state, each leaf [n, ...]: arrays of any dtype, typed keys too.

    Raises:
      ValueError: a leaf has no worker axis.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> same = jnp.ones((3, 5))
      >>> print(relaxjax.replica_difference({"w": same}))
      None
      >>> relaxjax.replica_difference({"w": same.at[2, 4].add(0.5)})
      ReplicaDifference(leaf='w', worker=2, elements=1, size=5, largest=0.5, copy=0)
    """
    leaves = [
        x if isinstance(x, jax.Array) else jnp.asarray(x) for x in jax.tree.leaves(tree)
    ]
    names = leaf_names(tree)
    for name, x in zip(names, leaves, strict=True):
        if not x.ndim:
            raise ValueError(
                f"replica_difference: leaf {name!r} has no worker axis; give state "
                "whose leaves are [n, ...], from relaxjax.init or relaxjax.to_workers"
            )
    for name, leaf, row in zip(names, leaves, rows_apart(leaves), strict=True):
        if row is not None:
            copy, worker = divmod(row, len(leaf))
            apart = _jitted(_apart, _everywhere(leaves), copied(leaf))
            count, largest = apart(leaf, row)
            size = leaf.size // len(leaf)
            return ReplicaDifference(
                name, worker, int(count), size, float(largest), copy
            )
    return None


def rows_apart(leaves: list[jax.Array]) -> list[int | None]:
    """For each leaf the first row that is not worker 0's, to the bit; None: none.

    The rows of a leaf [n, ...] are those of its first copy, then of the next. All
    processes must call it together, and all get the same answer.
    """
    if not leaves:
        return []
    each = [_digest(x, copied(x)) for x in leaves]
    words = np.asarray(_jitted(_together, _everywhere(leaves))(each))
    apart = (words != words[:, :1]).any(axis=2)
    return [int(row.argmax()) if row.any() else None for row in apart]


def require_replicas(tree: Any, what: str = "values") -> None:
    """Raises unless all workers hold the same values, to the bit.

    Args:
      tree: worker state; see `replica_difference`.
      what: name of the tree in the error, such as `"params"`.

    Raises:
      ReplicaError: names the first leaf and worker that differ, and by how much.
      ValueError: a leaf has no worker axis.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> relaxjax.require_replicas({"w": jnp.ones((3, 5))}, "params")
    """
    if difference := replica_difference(tree):
        raise ReplicaError(what, difference)


def _everywhere(leaves: list[jax.Array]) -> NamedSharding | None:
    """Results on every device of the mesh, so that each process can read them."""
    shardings = (x.sharding for x in leaves)
    named = (s for s in shardings if isinstance(s, NamedSharding))
    return next((NamedSharding(s.mesh, P()) for s in named), None)


@functools.cache
def _jitted(fn: Any, sharding: NamedSharding | None, *first: Any) -> Any:
    return jax.jit(functools.partial(fn, *first), out_shardings=sharding)


def _bits(x: jax.Array) -> jax.Array:
    """The bits as uint32[n, ...], in two words each where there are 64."""
    if is_key(x):
        x = jax.random.key_data(x)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = jnp.stack([x.real, x.imag], axis=-1)
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint32)
    if dtypes.itemsize_bits(x.dtype) < 8:
        x = x.astype(jnp.float32)
    kind = f"uint{8 * min(x.dtype.itemsize, 4)}"
    return lax.bitcast_convert_type(x, kind).astype(jnp.uint32)


@functools.partial(jax.jit, static_argnums=1)
def _digest(x: jax.Array, lies: Any) -> jax.Array:
    """uint32[copies n, 2] of a leaf; one program for all leaves of one form."""
    b = _bits(all_copies(x, lies))
    place = jnp.zeros((1, *b.shape[1:]), jnp.uint32)
    for axis, size in enumerate(b.shape[1:], 1):
        iota = lax.broadcasted_iota(jnp.uint32, place.shape, axis)
        place = place * jnp.uint32(size) + iota

    def word(seed: int) -> jax.Array:
        own, others = _keys(seed)
        each = hash_words(b ^ hash_words(place, own), others)
        return jnp.sum(each, axis=tuple(range(1, b.ndim)), dtype=jnp.uint32)

    return jnp.stack([word(0), word(1)], axis=-1)


@functools.cache
def _keys(seed: int) -> tuple[jax.Array, jax.Array]:
    """For places and for elements: numbers, which a program has not to compute."""
    with jax.ensure_compile_time_eval():
        words = key_words(seed)
        return words, fold(words, 1)


def _together(words: list[jax.Array]) -> jax.Array:
    """uint32[leaves, copies n, 2]; those of fewer copies come up again and again."""
    rows = math.lcm(*map(len, words))
    return jnp.stack([jnp.tile(x, (rows // max(1, len(x)), 1)) for x in words])


def _apart(lies: Any, x: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Number of elements of a copy that are not the first's; largest difference."""
    return untyped(lambda x: _compared(x, row), all_copies(x, lies), P(), P())


def _compared(x: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
    b = _bits(x)
    other = b != b[:1]
    if b.ndim > x.ndim:  # an element of several words
        other = other.any(axis=tuple(range(x.ndim, b.ndim)))
    count = jnp.sum(other[row])
    if is_key(x):
        return count, jnp.float32(jnp.nan)
    whole = not jnp.issubdtype(x.dtype, jnp.inexact)
    if not jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = x.astype(float)  # doubles in x64
    gap = jnp.abs(x[row] - x[0])
    if whole:  # large ones may differ by less than float32 resolves
        gap = jnp.maximum(gap, 1)
    return count, largest(jnp.where(other[row], gap, 0))
