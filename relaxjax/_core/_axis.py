"""What a transformation may ask about the named axis it runs over.

An axis is bound by `jax.shard_map`, `jax.pmap` or `jax.vmap(axis_name=...)`. Only
`shard_map` with `check_vma=True` tracks which values vary over the axis; everywhere
else the questions below answer "not tracked" and the values are taken as local.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax import lax
from jax.sharding import AbstractMesh, AxisType

AxisName = str | tuple[str, ...]


def axes_of(axis_name: AxisName) -> tuple[str, ...]:
    """The axis names as a tuple, outermost first."""
    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"axis_name={axis_name!r}: an axis name is a string, or a tuple of strings "
            "with the outer axis first, such as ('host', 'device')"
        )
    if len(set(names)) != len(names):
        raise ValueError(f"axis_name={axis_name!r} names an axis twice")
    return names


def axis_size(axis_name: AxisName, caller: str) -> int:
    """Number of workers on the axis; `caller` is named when there is no such axis."""
    size = 1
    for name in axes_of(axis_name):
        try:
            size *= lax.axis_size(name)
        except NameError:
            raise NameError(
                f"{caller}: no axis named {name!r} here. It is bound inside "
                "relaxjax.data_parallel (whose state comes from relaxjax.init), or "
                f"inside your own jax.shard_map, jax.pmap or "
                f"jax.vmap(axis_name={name!r}); is the name the mesh's?"
            ) from None
    return size


def varying(x: Any) -> frozenset[str]:
    """Axes over which the type of `x` says that it varies; empty where untracked."""
    kind = getattr(jax.typeof(x), "manual_axis_type", None)
    return frozenset(getattr(kind, "varying", frozenset()))


def tracks_vma(name: str) -> bool:
    """Whether the mapping around us tracks what varies over the axis `name`."""
    return name in varying(lax.axis_index(name))


def on_devices(name: str) -> bool:
    """Whether the axis `name` is one of devices (shard_map, pmap), and not of vmap."""
    return name in jax.sharding.get_abstract_mesh().manual_axes


def as_on_devices(
    sizes: Mapping[str, int], workers: Collection[str]
) -> AbstractContextManager[Any]:
    """In it, what is traced over the workers' axes takes them for axes of devices.

    Args:
      sizes: of all axes of a mesh.
      workers: those that are the workers'; the others are the compiler's.
    """
    kinds = tuple(
        AxisType.Manual if name in workers else AxisType.Auto for name in sizes
    )
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=kinds)
    return jax.sharding.use_abstract_mesh(mesh)


def to_local(tree: Any, axis_name: AxisName) -> Any:
    """Makes replicated values worker-varying, so that gradients are local.

    Inside `jax.shard_map` with its default `check_vma=True`, JAX sums the gradient
    with respect to replicated parameters over the axis by itself. A reducer must see
    the local gradient, so make the parameters varying first. Anywhere else (in
    `check_vma=False`, `jax.pmap`, `jax.vmap`) this is the identity.

    Args:
      tree: a pytree of arrays.
      axis_name: the axis, or a tuple of axes.

    Returns:
      The same values, shapes and dtypes.

    Raises:
      NameError: outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> from jax.sharding import PartitionSpec as P
      >>> mesh = jax.sharding.Mesh(jax.devices()[:4], "data")
      >>> def local_gradients(w, x):
      ...     w = relaxjax.to_local(w, "data")
      ...     return jax.grad(lambda w: (w * x).sum())(w)[None]
      >>> f = jax.shard_map(local_gradients, mesh=mesh, in_specs=(P(), P("data")),
      ...                   out_specs=P("data"))
      >>> print(f(jnp.float32(1), jnp.arange(4.0)))
      [0. 1. 2. 3.]
    """
    axis_size(axis_name, "to_local")
    names = [name for name in axes_of(axis_name) if tracks_vma(name)]

    def localize(x):
        missing = tuple(name for name in names if name not in varying(x))
        return lax.pcast(x, missing, to="varying") if missing else x

    return jax.tree.map(localize, tree)


def like_varying(tree: Any, example: Any) -> Any:
    """Gives each leaf the varying type of the matching leaf of `example` as well.

    The two branches of a `lax.cond` must agree in it; `example` may be abstract.
    """

    def match(x, wanted):
        kind = getattr(wanted, "manual_axis_type", None)
        names = frozenset(getattr(kind, "varying", frozenset())) - varying(x)
        return lax.pcast(x, tuple(sorted(names)), to="varying") if names else x

    return jax.tree.map(match, tree, example)


def require_local(tree: Any, axis_name: AxisName, caller: str) -> None:
    """Refuses values that the mapping knows to be equal on all workers already."""
    for name in axes_of(axis_name):
        if not tracks_vma(name):
            continue
        for path, leaf in jax.tree.leaves_with_path(tree):
            if name not in varying(leaf):
                leaf_name = jax.tree_util.keystr(path, simple=True, separator="/")
                raise ValueError(
                    f"{caller}: the update of leaf {leaf_name!r} is already the same "
                    f"on every worker of {name!r}: under check_vma=True, jax.grad with "
                    "respect to replicated parameters is summed over the axis by JAX "
                    "itself, and reducing it again would be silently wrong. Call "
                    f"params = relaxjax.to_local(params, {name!r}) before jax.grad"
                )


def compiler_axes() -> tuple[str, ...]:
    """Axes of the mesh around us, of size over 1, that are left to the compiler."""
    mesh = jax.sharding.get_abstract_mesh()
    return tuple(
        name
        for name, size in mesh.shape.items()
        if size > 1 and name not in mesh.manual_axes
    )
