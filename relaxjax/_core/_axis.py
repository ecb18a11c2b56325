"""What a transformation may ask about the named axis that it runs over.

An axis is bound by `jax.shard_map`, `jax.pmap` or `jax.vmap(axis_name=...)`. Only
`shard_map` with `check_vma=True` tracks which values vary over the axis; everywhere
else nothing is tracked, and values are taken as local.
"""

from typing import Any

import jax
from jax import lax

AxisName = str | tuple[str, ...]


def axes_of(axis_name: AxisName) -> tuple[str, ...]:
    """The axis names as a tuple, outermost first."""
    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"axis_name={axis_name!r:.60}: an axis name is a string, or a tuple of "
            "strings with the outer axis first, such as ('host', 'device'). Are two "
            "arguments in the other's place?"
        )
    if len(set(names)) != len(names):
        raise ValueError(f"axis_name={axis_name!r} names an axis twice")
    return names


def axis_size(axis_name: AxisName, caller: str) -> int:
    """Number of workers on the axis; errors name `caller`."""
    size = 1
    for name in axes_of(axis_name):
        try:
            size *= lax.axis_size(name)
        except NameError:
            # Those of a mesh; what `jax.vmap` binds cannot be asked for.
            there = ", ".join(map(repr, jax.sharding.get_abstract_mesh().manual_axes))
            only = f", only {there}: give {caller} such a name" if there else ""
            raise NameError(
                f"{caller}: no axis named {name!r} here{only}. relaxjax.data_parallel "
                "binds the workers' axes (for state from relaxjax.init), and your own "
                f"jax.shard_map, jax.pmap and jax.vmap(axis_name={name!r}) theirs"
            ) from None
    return size


def varying(x: Any) -> frozenset[str]:
    """Axes over which the type of `x` says that it varies; empty where untracked."""
    return _varying(jax.typeof(x))


def _varying(aval: Any) -> frozenset[str]:
    kind = getattr(aval, "manual_axis_type", None)
    return frozenset(getattr(kind, "varying", frozenset()))


def tracks_vma(name: str) -> bool:
    """Whether the mapping around us tracks which values vary over the axis `name`."""
    return name in varying(lax.axis_index(name))


def on_devices(name: str) -> bool:
    """Whether the axis `name` is one of devices (shard_map, pmap) rather than vmap."""
    return name in jax.sharding.get_abstract_mesh().manual_axes


def to_local(tree: Any, axis_name: AxisName) -> Any:
    """Makes replicated values vary over the workers, so that gradients are local.

    Inside `jax.shard_map` with its default `check_vma=True`, JAX itself sums the
    gradient with respect to replicated parameters over the axis. A reducer must see
    the local gradient, so make the parameters varying first. Anywhere else
    (`check_vma=False`, `jax.pmap`, `jax.vmap`) this is the identity.

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
    """Makes each leaf vary over the axes of `example`'s too, as `lax.cond` demands."""

    def match(x, wanted):
        names = _varying(wanted) - varying(x)
        return lax.pcast(x, tuple(sorted(names)), to="varying") if names else x

    return jax.tree.map(match, tree, example)


def compiler_axes() -> tuple[str, ...]:
    """Axes of the mesh around us of size over 1 that are left to the compiler."""
    mesh = jax.sharding.get_abstract_mesh()
    return tuple(
        name
        for name, size in mesh.shape.items()
        if size > 1 and name not in mesh.manual_axes
    )
