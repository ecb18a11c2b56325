"""Whether workers that should hold the same values do, to the bit.

For each leaf and worker, two words, of the elements' bits b_1 .. b_d:

    sum over i of mix(b_i xor mix(i)) mod 2^32

Equal bits have equal words wherever they lie, as whole numbers add up in any order;
others have different ones, but for one case in 2^64. NaNs equal NaNs of the same bits,
and -0.0 does not equal 0.0.

Cost: each device reads its own shard once; 8 bytes per leaf and worker are sent. Where
words differ, that leaf is compared itself.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._dtypes import is_key
from relaxjax._core._random import fold, hash_words, key_words
from relaxjax._core._tree import leaf_names


class ReplicaDifference(NamedTuple):
    """Where workers differ that should not: the first leaf, and its first worker.

    Attributes:
      leaf: name of the first, in the tree's order, that not all workers hold alike.
      worker: the first whose bits are not those of worker 0.
      elements: number of elements in which the two differ.
      size: number of elements.
      largest: largest difference between the two, in the leaf's unit; 0.0 where only
        signs of zeros differ, NaN where a NaN does, or for keys.
    """

    leaf: str
    worker: int
    elements: int
    size: int
    largest: float

    def __str__(self) -> str:
        """One sentence, for people."""
        return (
            f"leaf {self.leaf!r} of worker {self.worker} is not that of worker 0: "
            f"{self.elements} of {self.size} elements differ in their bits, by "
            f"{self.largest:.3g} at most"
        )


class ReplicaError(RuntimeError):
    """Workers that should hold the same values do not.

    Attributes:
      difference: where.
    """

    def __init__(self, what: str, difference: ReplicaDifference):
        """Says so in words; `what` is what was compared."""
        super().__init__(
            f"workers no longer hold the same {what}: {difference}. Look for "
            "randomness or data that differs by worker in what should be common, a "
            "collective over some workers alone, or failing memory; and go on from the "
            "last checkpoint before it"
        )
        self.difference = difference


def replica_difference(tree: Any) -> ReplicaDifference | None:
    """Where workers differ that should hold the same, or None.

    Over several processes, all must call it, and all are told the same.

    Args:
      tree: worker state, each leaf [n, ...]: arrays of any dtype, typed keys too.

    Raises:
      ValueError: a leaf without a worker axis.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> same = jnp.ones((3, 5))
      >>> print(relaxjax.replica_difference({"w": same}))
      None
      >>> relaxjax.replica_difference({"w": same.at[2, 4].add(0.5)})
      ReplicaDifference(leaf='w', worker=2, elements=1, size=5, largest=0.5)
    """
    leaves = [
        x if isinstance(x, jax.Array) else jnp.asarray(x) for x in jax.tree.leaves(tree)
    ]
    names = leaf_names(tree)
    for name, x in zip(names, leaves, strict=True):
        if not x.ndim:
            raise ValueError(
                f"replica_difference: leaf {name!r} has no worker axis; give state "
                "whose leaves are [n, ...], as of relaxjax.init or relaxjax.to_workers"
            )
    if not leaves:
        return None
    everywhere = _everywhere(leaves)
    words = np.asarray(_jitted(_digests, everywhere)(leaves))
    for k, own in enumerate(words):
        apart = (own != own[:1]).any(axis=1)
        if apart.any():
            worker = int(apart.argmax())
            count, largest = _jitted(_apart, everywhere)(leaves[k], worker)
            size = leaves[k].size // len(own)
            return ReplicaDifference(names[k], worker, int(count), size, float(largest))
    return None


def require_replicas(tree: Any, what: str = "values") -> None:
    """Raises unless all workers hold the same, to the bit.

    Args:
      tree: as of `replica_difference`.
      what: it is called in the error, such as `"params"`.

    Raises:
      ReplicaError: naming the first leaf and worker that differ, and by how much.
      ValueError: a leaf without a worker axis.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> relaxjax.require_replicas({"w": jnp.ones((3, 5))}, "params")
    """
    if difference := replica_difference(tree):
        raise ReplicaError(what, difference)


def _everywhere(leaves: list[jax.Array]) -> NamedSharding | None:
    """A copy on each device of the mesh, so that each process can read it."""
    for x in leaves:
        if isinstance(x.sharding, NamedSharding):
            return NamedSharding(x.sharding.mesh, P())
    return None


@functools.cache
def _jitted(fn: Any, sharding: NamedSharding | None) -> Any:
    return jax.jit(fn, out_shardings=sharding)


def _bits(x: jax.Array) -> jax.Array:
    """uint32[n, ...] of the same bits, in two words where there are 64."""
    if is_key(x):
        x = jax.random.key_data(x)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = jnp.stack([x.real, x.imag], axis=-1)
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint32)
    kind = f"uint{8 * min(x.dtype.itemsize, 4)}"
    return lax.bitcast_convert_type(x, kind).astype(jnp.uint32)


def _digests(leaves: list[jax.Array]) -> jax.Array:
    """uint32[leaves, n, 2]."""

    def digest(x: jax.Array, seed: int) -> jax.Array:
        b, words = _bits(x), key_words(seed)
        place = jnp.zeros((1, *b.shape[1:]), jnp.uint32)
        for axis, size in enumerate(b.shape[1:], 1):
            iota = lax.broadcasted_iota(jnp.uint32, place.shape, axis)
            place = place * jnp.uint32(size) + iota
        each = hash_words(b ^ hash_words(place, words), fold(words, 1))
        return jnp.sum(each, axis=tuple(range(1, b.ndim)), dtype=jnp.uint32)

    both = [jnp.stack([digest(x, 0), digest(x, 1)], axis=-1) for x in leaves]
    return jnp.stack(both)


def _apart(x: jax.Array, worker: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How many elements of a worker are not worker 0's, and by how much at most."""
    b = _bits(x)
    other = b != b[:1]
    if b.ndim > x.ndim:  # an element of several words
        other = other.any(axis=tuple(range(x.ndim, b.ndim)))
    count = jnp.sum(other[worker])
    if is_key(x):
        return count, jnp.float32(jnp.nan)
    wide = x if jnp.issubdtype(x.dtype, jnp.complexfloating) else x.astype(jnp.float32)
    gap = jnp.where(other[worker], jnp.abs(wide[worker] - wide[0]), 0)
    return count, jnp.max(gap, initial=0)
