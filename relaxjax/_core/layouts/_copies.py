"""Every device's copy of worker state, also along axes that do not shard it.

An array that is whole along an axis of the mesh has a copy on each device along it, of
which JAX reads one. Where they differ, what comes out of a program depends on the copy
that is read.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import axes_of


def copied(x: Any) -> NamedSharding | None:
    """The sharding of an array of which some devices hold copies; None of others."""
    sharding = getattr(x, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not x.ndim:
        return None
    return sharding if _spare_axes(sharding) else None


def all_copies(x: jax.Array, sharding: NamedSharding | None) -> jax.Array:
    """[copies n, ...] of x[n, ...], the first copy first; for use inside `jax.jit`.

    `sharding` is that of `copied(x)`; without one, x is all there is.
    """
    if sharding is None:
        return x
    first, *rest = (*sharding.spec, *(None,) * (x.ndim - len(sharding.spec)))
    over = (*_spare_axes(sharding), *(axes_of(first) if first else ()))
    return jax.shard_map(
        lambda x: x,
        mesh=sharding.mesh,
        in_specs=sharding.spec,
        out_specs=P(over, *rest),
        check_vma=False,
    )(x)


def is_explicit(mesh: Any) -> bool:
    """Whether an axis of a mesh is part of the arrays' types."""
    return AxisType.Explicit in (mesh.axis_types or ())


def untyped(of: Callable[[Any], Any], x: Any, *specs: P) -> Any:
    """`of(x)`, whose results lie by `specs`.

    On Explicit axes types would refuse a worker's part.
    """
    mesh = jax.typeof(x).sharding.mesh
    if not is_explicit(mesh):
        return of(x)
    lie: Any = [NamedSharding(mesh, spec) for spec in specs]
    lie = lie[0] if len(lie) == 1 else tuple(lie)
    bare: Any = jax.sharding.auto_axes(of, out_sharding=lie)
    return bare(x)


def _spare_axes(sharding: NamedSharding) -> tuple[str, ...]:
    """The axes along which devices hold copies."""
    used = {axis for part in sharding.spec if part for axis in axes_of(part)}
    sizes = sharding.mesh.shape
    return tuple(axis for axis in sizes if axis not in used and sizes[axis] > 1)
