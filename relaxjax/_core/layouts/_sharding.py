"""Communication beside model parallelism: on each device's own shard of every leaf.

A transformation sees whole leaves, not how the compiler shards them over the other axes
of the mesh: packing them would gather what is sharded. `specs=` says how, and the
communication runs in a nested mapping in which those axes are manual too.

A leaf that is whole on every device is a copy of which all must stay equal. What is
computed from it and from a part of another leaf, as a code's scale, differs: so leaves
that are sharded over other axes share no message (`sharded_over`), and norms over
leaves are of all their parts (`parts_over`).
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import optax
from jax import lax
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import axes_of, compiler_axes
from relaxjax._core._tree import leaf_names

_TYPED: ContextVar[Mapping[str, frozenset[str]] | None] = ContextVar(
    "typed", default=None
)
"""In a mapping of `relaxjax.unreduced`: the axes over which each leaf is sharded."""


def on_own_shards(
    fn: Callable[..., Any],
    tree: Any,
    specs: Any,
    caller: str,
    *replicated: Any,
    results: int | None = None,
) -> Any:
    """`fn(tree, *replicated)` on each device, with its shard of every leaf of `tree`.

    `fn` returns its shard of a tree of the same shapes, or a tuple of `results` trees;
    it does not communicate over the other axes. `specs` is the same tree, of
    `PartitionSpec` over the axes that are the compiler's; other specs are refused.
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
    """The checked specs of `on_own_shards`; None where no axis is the compiler's."""
    axes = compiler_axes()
    if specs is None or not axes:
        return None
    _check(specs, tree, axes, caller)
    return specs


def shard_shapes(tree: Any, specs: Any, caller: str) -> Any:
    """Each device's shard of every leaf, as `jax.ShapeDtypeStruct`; `specs` or None."""
    sizes = jax.sharding.get_abstract_mesh().shape
    if fitting(specs, tree, caller) is None:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)

    def shard(x, spec):
        cuts = [math.prod(sizes[a] for a in used_axes(P(entry))) for entry in spec]
        cuts += [1] * (x.ndim - len(cuts))
        shape = [d // cut for d, cut in zip(x.shape, cuts, strict=True)]
        return jax.ShapeDtypeStruct(tuple(shape), x.dtype)

    return jax.tree.map(shard, tree, specs)


def used_axes(spec: P) -> tuple[str, ...]:
    """The axes that a leaf is sharded over."""
    return tuple(axis for entry in spec if entry for axis in axes_of(entry))


def sharded_over(tree: Any, specs: Any = None) -> tuple[frozenset[str], ...]:
    """For each leaf, the axes of more than one device over which it is sharded.

    Types know it in a mapping of `relaxjax.unreduced`; elsewhere `specs`, of the same
    tree, says so. No leaf is sharded where it is None.
    """
    if (typed := _TYPED.get()) is not None:
        return tuple(typed[name] for name in leaf_names(tree))
    each = [] if specs is None else jax.tree.leaves(unmasked(specs, tree))
    layouts = tuple(map(_axes_that_cut, each))
    return layouts if any(layouts) else (frozenset(),) * len(jax.tree.leaves(tree))


def alike(layouts: Sequence[Hashable]) -> list[list[int]]:
    """The places of each layout, in the order in which layouts come up."""
    places: dict[Hashable, list[int]] = {}
    for i, layout in enumerate(layouts):
        places.setdefault(layout, []).append(i)
    return list(places.values())


def is_masked(x: Any) -> bool:
    """Whether it stands where `optax.masked` hides a leaf."""
    return isinstance(x, optax.MaskedNode)


def unmasked(specs: Any, tree: Any) -> Any:
    """The specs of the leaves that are here: `optax.masked` hides the others."""
    if not any(map(is_masked, jax.tree.leaves(tree, is_leaf=is_masked))):
        return specs
    return jax.tree.map(
        lambda u, spec: u if is_masked(u) else spec, tree, specs, is_leaf=is_masked
    )


def parts_over(tree: Any, specs: Any = None) -> tuple[tuple[str, ...], ...]:
    """For each leaf, the axes over which a sum takes all parts that devices hold.

    They are those of `sharded_over` that are not the compiler's, which adds up itself.
    """
    manual = jax.sharding.get_abstract_mesh().manual_axes
    held = sharded_over(tree, specs)
    return tuple(tuple(axis for axis in manual if axis in axes) for axes in held)


def whole_sum(x: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """A leaf's sum, of the sums of its parts along these axes."""
    return lax.psum(x, axes) if axes else x


@contextmanager
def as_typed(specs: Any) -> Iterator[None]:
    """In it, leaves are sharded as `specs` says, a tree with the names of theirs."""
    each = map(_axes_that_cut, jax.tree.leaves(specs))
    token = _TYPED.set(dict(zip(leaf_names(specs), each, strict=True)))
    try:
        yield
    finally:
        _TYPED.reset(token)


def _axes_that_cut(spec: P) -> frozenset[str]:
    if not isinstance(spec, P):  # refused by name where it counts
        return frozenset()
    sizes = jax.sharding.get_abstract_mesh().shape
    return frozenset(axis for axis in used_axes(spec) if sizes.get(axis, 1) > 1)


def _check(specs: Any, tree: Any, axes: tuple[str, ...], caller: str) -> None:
    if jax.tree.structure(specs) != jax.tree.structure(tree):
        differ = sorted(set(leaf_names(tree)) ^ set(leaf_names(specs)))
        raise ValueError(
            f"{caller}: specs= does not match the tree of updates "
            f"(it differs at {differ or 'the kind of containers'}): give one "
            "jax.sharding.PartitionSpec for each leaf; P() where it is not sharded"
        )
    trees = leaf_names(tree), jax.tree.leaves(tree), jax.tree.leaves(specs)
    for name, leaf, spec in zip(*trees, strict=True):
        if not isinstance(spec, P) or len(spec) > leaf.ndim:
            raise ValueError(
                f"{caller}: specs= of leaf {name!r} is {spec}, and must be a "
                f"PartitionSpec of at most {leaf.ndim} entries, one per dimension"
            )
        if wrong := [axis for axis in used_axes(spec) if axis not in axes]:
            raise ValueError(
                f"{caller}: specs= of leaf {name!r} names the axis {wrong[0]!r}, which "
                f"is not among those left to the compiler, {axes}; leave out the "
                "workers' axes"
            )


def as_on_devices(
    sizes: Mapping[str, int], workers: Collection[str]
) -> AbstractContextManager[Any]:
    """A context in which tracing takes the workers' axes for axes of devices.

    The other axes, of these sizes, are left to the compiler.
    """
    kinds = (AxisType.Manual if name in workers else AxisType.Auto for name in sizes)
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=tuple(kinds))
    return jax.sharding.use_abstract_mesh(mesh)
