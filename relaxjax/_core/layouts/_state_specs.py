"""How a transformation's state lies on a mesh where other axes shard params.

State that belongs to leaves is a tree like the params, or `OfLeaves`. So each array of
it is known to be some leaf's: x, which lies as P(*s) and is sharded over axes A. On a
device it is [1, *shape], and on the mesh

    shape of x's part     [n, ..]            P(workers, *s)    residuals, momenta
    any other             [n, k d, ..]       P(workers, A)     factors of k parts
    ()                    [n k]              P((*workers, *A))

so that what each device of A has of its own is typed as its own. All else is the same
along A: counters, randomness, and whatever belongs to a leaf that is whole there.
"""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from relaxjax._core.layouts._sharding import is_masked, used_axes


@jax.tree_util.register_pytree_with_keys_class
class OfLeaves(tuple[Any, ...]):
    """A tuple with one entry, a pytree, for each leaf of the params, in order."""

    def tree_flatten_with_keys(self) -> Any:
        """Entries with the paths of a tuple's."""
        return [(jax.tree_util.SequenceKey(i), x) for i, x in enumerate(self)], None

    @classmethod
    def tree_unflatten(cls, aux: None, entries: Iterable[Any]) -> "OfLeaves":
        """Inverse of `tree_flatten_with_keys`."""
        del aux
        return cls(entries)


def state_specs(state: Any, params: Any, workers: tuple[str, ...]) -> Any:
    """The spec of each array of a state, given as a device has it: [1, ...]."""
    # Parts of both may be hidden, by `optax.partition`.
    slots, structure = jax.tree.flatten(params, is_leaf=is_masked)
    leaves = jax.tree.leaves(params)

    def entries_of(part: Any) -> tuple[list[Any], Any]:
        if isinstance(part, OfLeaves):
            return list(part), jax.tree.structure(part, is_leaf=lambda x: x is not part)
        return jax.tree.flatten(part, is_leaf=is_masked)

    def mirrors(part: Any) -> bool:
        return isinstance(part, OfLeaves) or entries_of(part)[1] == structure

    def of_part(part: Any) -> Any:
        if not mirrors(part):
            return P(workers)
        entries, tree = entries_of(part)
        each = leaves if isinstance(part, OfLeaves) else slots
        specs = [
            jax.tree.map(lambda kind, x=x: _spec(kind, x, workers), entry)
            for entry, x in zip(entries, each, strict=True)
        ]
        return jax.tree.unflatten(tree, specs)

    return jax.tree.map(of_part, state, is_leaf=mirrors)


def _spec(kind: Any, x: Any, workers: tuple[str, ...]) -> P:
    sharding, shape = jax.typeof(x).sharding, kind.shape[1:]
    partitions = sharding.spec.partitions
    if shape == sharding.shard_shape(x.shape):
        return P(workers, *partitions)
    held = used_axes(P(*partitions))
    # Of params that are a bare array, counters and keys seem to be its own as well.
    if not held or not jnp.issubdtype(kind.dtype, jnp.inexact):
        return P(workers)
    return P(workers, held) if shape else P((*workers, *held))
