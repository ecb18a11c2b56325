"""Checks of trees of arrays: their leaves, dtypes and shapes, and whose they are.

Each raises ValueError, or TypeError for what is no array, and names the method, the
leaf, the rule and the remedy.

Cost: O(leaves).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._axis import (
    AxisName,
    axes_of,
    axis_size,
    compiler_axes,
    tracks_vma,
    varying,
)
from relaxjax._core._tree import Layout, key_path, layout_of, leaf_name

_VARIABLE = (jax.tree_util.GetAttrKey("value"),)


def own_names(tree: Any) -> list[str]:
    """The names of leaves, "" of a bare array, by which users choose.

    `nnx.Optimizer` gives `init` variables and `update` the arrays in them: the leaf
    "w/value" of the one is "w" in the other, and "w" in both here.
    """
    paths = [path for path, _ in jax.tree.leaves_with_path(tree)]
    return [key_path(x[:-1] if x[-1:] == _VARIABLE else x) for x in paths]


def without_value(order: Iterable[str], names: Sequence[str]) -> list[str]:
    """A user's list of these names, some of which may be those of variables."""
    return [x if x in names else x.removesuffix("/value") for x in order]


def require_arrays(tree: Any, caller: str) -> None:
    """Refuses a tree with other leaves than arrays, such as a layer's activation."""
    for path, leaf in jax.tree.leaves_with_path(tree, is_leaf=_is_sparse):
        if _is_sparse(leaf):
            raise TypeError(
                f"{caller}: leaf {leaf_name(path)!r} is a sparse array "
                f"({type(leaf).__name__}), which has no leading axis of workers. Train "
                "its numbers, and put the matrix together in the loss, as in "
                "sparse.BCOO((params['w'], indices), shape=shape)"
            )
        try:
            jax.typeof(leaf)
        except TypeError:
            if hasattr(leaf, "__array__"):  # another library's array
                continue
            kind = f"of type {type(leaf).__name__}"
            if callable(leaf):
                kind = f"the function {getattr(leaf, '__name__', leaf)}"
            raise TypeError(
                f"{caller}: leaf {leaf_name(path)!r} is {kind}, and not an array. Give "
                "the arrays alone, and put the rest beside them in the loss: with "
                "Equinox, params, static = eqx.partition(model, eqx.is_inexact_array) "
                "and eqx.combine(params, static). In a class of your own, make the "
                "field static (jax.tree_util.register_dataclass)"
            ) from None


def _is_sparse(part: Any) -> bool:
    """Whether it is an array of `jax.experimental.sparse`, which is a tree."""
    return hasattr(part, "todense")


def shapes_of(tree: Any) -> Any:
    """Shapes and dtypes of a tree of arrays, to trace with."""
    require_arrays(tree, "params")
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(jax.typeof(x).shape, jax.typeof(x).dtype), tree
    )


_SPLIT = "Wrap the whole chain: optax.contrib.split_real_and_imaginary(tx)"


def require_dtypes(tree: Any, caller: str, compressor: str | None) -> None:
    """Refuses leaves without a mean, or that the named compressor does not take."""
    require_arrays(tree, caller)
    kind = jnp.inexact if compressor is None else jnp.floating
    for path, leaf in jax.tree.leaves_with_path(tree):
        dtype = jax.typeof(leaf).dtype
        if not jnp.issubdtype(dtype, kind):
            rule = (
                "which has no mean: only floating (or complex) leaves are reduced"
                if compressor is None
                else f"and {compressor} compresses real floating leaves only"
            )
            is_complex = jnp.issubdtype(dtype, jnp.complexfloating)
            keep = f"{_SPLIT}. Or keep" if is_complex else "Keep"
            raise ValueError(
                f"{caller}: leaf {key_path(path)!r} is {dtype}, {rule}. {keep} it out "
                "of the params that are trained; or give the optimizer the others "
                f"alone, relaxjax.{caller} with it: optax.partition({{'trained': "
                "optimizer, 'kept': optax.set_to_zero()}, labels)"
            )


def require_no_compiler_axes(caller: str, how: str) -> None:
    """Refuses to pack leaves that the compiler shards; `how` names what packs them."""
    if axes := compiler_axes():
        raise ValueError(
            f"{caller}: {how} packs leaves into flat buckets, which would gather what "
            f"the compiler shards over {axes}. Pass specs= (a PartitionSpec over those "
            "axes for each leaf), or use all_reduce with algorithm='psum'"
        )


def require_local(tree: Any, axis_name: AxisName, caller: str) -> None:
    """Refuses values that the mapping already knows to be equal on all workers."""
    for name in axes_of(axis_name):
        if not tracks_vma(name):
            continue
        for path, leaf in jax.tree.leaves_with_path(tree):
            if name not in varying(leaf):
                raise ValueError(
                    f"{caller}: the update of leaf {key_path(path)!r} is already the "
                    f"same on every worker of {name!r}: under check_vma=True, JAX "
                    "itself sums the gradient with respect to replicated parameters "
                    "over the axis, and reducing it again would be silently wrong. "
                    f"Call params = relaxjax.to_local(params, {name!r}) before jax.grad"
                )


def require_own_parts(tree: Any, axis_name: AxisName, specs: Any, caller: str) -> None:
    """Refuses leaves that are not each worker's own, or in parts without specs."""
    require_local(tree, axis_name, caller)
    if specs is None:
        require_no_compiler_axes(caller, "it")


def difference(before: Layout, now: Layout, *, dtypes: bool) -> str | None:
    """The first leaf in which two layouts differ, in words; None if they do not.

    `nnx.Optimizer` gives `init` variables and `update` the arrays in them: "w/value" is
    the same leaf as "w".
    """
    old, new = before.leaves, now.leaves
    if old.keys() != new.keys():
        old, new = (
            {k.removesuffix("/value"): v for k, v in x.items()} for x in (old, new)
        )
    for name in old | new:
        was, is_now = old.get(name, "absent"), new.get(name, "absent")
        shapes = {spelling.partition("[")[2] for spelling in (was, is_now)}
        if was != is_now and (dtypes or len(shapes) > 1):
            return f"leaf {name!r} was {was} and is now {is_now}"
    return None


def require_same(before: Layout, updates: Any, caller: str) -> None:
    """Refuses updates of other shapes than those that `init` saw; dtypes may differ."""
    if wrong := difference(before, layout_of(updates), dtypes=False):
        raise ValueError(
            f"{caller}: the tree changed since init: {wrong}. A state belongs to the "
            "params that it was made for: call relaxjax.init again for new params"
        )


def require_own(caller: str, axis_name: AxisName, layout: Layout, updates: Any) -> None:
    """Refuses updates that are not each worker's own, whole, of the tree of `init`."""
    axis_size(axis_name, caller)
    require_same(layout, updates, caller)
    require_dtypes(updates, caller, "it")
    require_own_parts(updates, axis_name, None, caller)
