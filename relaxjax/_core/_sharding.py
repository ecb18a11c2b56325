"""Communication beside model parallelism: on each device's own shard of every leaf.

A transformation sees whole leaves, and how the compiler shards them over the other axes
of the mesh it cannot see: packing them would gather what is sharded. `specs=` says it,
and the communication runs in a nested mapping in which those axes are manual too.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import axes_of, compiler_axes
from relaxjax._core._tree import leaf_names


def on_own_shards(
    fn: Callable[..., Any],
    tree: Any,
    specs: Any,
    caller: str,
    *replicated: Any,
    results: int | None = None,
) -> Any:
    """`fn(tree, *replicated)`, each device giving its shard of every leaf.

    Args:
      fn: to a tree of the same shapes, of which each device has its shard again;
        without communication over the other axes.
      tree: a pytree of arrays.
      specs: the same tree of `PartitionSpec` over the axes that are the compiler's.
      caller: who is named in errors.
      *replicated: what each device has all of.
      results: number of trees in a tuple that `fn` returns; None for a bare tree.

    Raises:
      ValueError: `specs` is another tree, names an axis that is not the compiler's, or
        has more entries than a leaf has dimensions.
    """
    axes = compiler_axes()
    if not axes:  # one device holds all of each leaf
        return fn(tree, *replicated)
    _check(specs, tree, axes, caller)
    return jax.shard_map(
        fn,
        in_specs=(specs, *(P() for _ in replicated)),
        out_specs=specs if results is None else (specs,) * results,
        axis_names=set(axes),
        check_vma=False,
    )(tree, *replicated)


def fitting(specs: Any, tree: Any, caller: str) -> Any:
    """The specs, or None where no other axes are that they could name.

    Args:
      specs: as of `on_own_shards`, or None.
      tree: a pytree of arrays.
      caller: who is named in errors.

    Raises:
      ValueError: as of `on_own_shards`.
    """
    axes = compiler_axes()
    if specs is None or not axes:
        return None
    _check(specs, tree, axes, caller)
    return specs


def shard_shapes(tree: Any, specs: Any, caller: str) -> Any:
    """What each device has of every leaf, as `jax.ShapeDtypeStruct`.

    Args:
      tree: a pytree of arrays.
      specs: as of `on_own_shards`, or None.
      caller: who is named in errors.
    """
    sizes = jax.sharding.get_abstract_mesh().shape
    if fitting(specs, tree, caller) is None:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)

    def own(x, spec):
        cuts = [math.prod(sizes[a] for a in used_axes(P(entry))) for entry in spec]
        cuts += [1] * (x.ndim - len(cuts))
        shape = [d // cut for d, cut in zip(x.shape, cuts, strict=True)]
        return jax.ShapeDtypeStruct(tuple(shape), x.dtype)

    return jax.tree.map(own, tree, specs)


def used_axes(spec: P) -> tuple[str, ...]:
    """The axes that a leaf is sharded over."""
    return tuple(axis for entry in spec if entry for axis in axes_of(entry))


def _check(specs: Any, tree: Any, axes: tuple[str, ...], caller: str) -> None:
    if jax.tree.structure(specs) != jax.tree.structure(tree):
        names, given = leaf_names(tree), leaf_names(specs)
        differ = [n for n in [*names, *given] if (n in names) != (n in given)]
        raise ValueError(
            f"{caller}: specs= does not match the tree of updates "
            f"(it differs at {differ or 'the kind of containers'}): give one "
            "jax.sharding.PartitionSpec for each leaf; P() where it is not sharded"
        )
    leaves = zip(
        leaf_names(tree), jax.tree.leaves(tree), jax.tree.leaves(specs), strict=True
    )
    for name, leaf, spec in leaves:
        if not isinstance(spec, P) or len(spec) > leaf.ndim:
            raise ValueError(
                f"{caller}: specs= of leaf {name!r} is {spec}, and must be a "
                f"PartitionSpec of at most {leaf.ndim} entries, one for each dimension"
            )
        if wrong := [axis for axis in used_axes(spec) if axis not in axes]:
            raise ValueError(
                f"{caller}: specs= of leaf {name!r} names the axis {wrong[0]!r}, which "
                f"is not among those left to the compiler, {axes}. Workers' axes are "
                "not part of it"
            )
