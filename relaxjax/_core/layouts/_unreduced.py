"""Reducers in a plain `jit` program: of gradients that JAX knows nobody has reduced.

JAX types a gradient with respect to params of type `P(reduced={"data"})` as unreduced:
each device of axis "data" holds a partial sum u_i, and the gradient of the loss over
the whole batch is their sum. A reducer over "data" that sees such types maps itself
over the devices (`jax.shard_map`), with

    g_i = n u_i        the gradient of the mean over the worker's own examples

on worker i, and its state with a leading axis [n, ...] that is sharded over "data"
(how it lies over other axes: `relaxjax._core.layouts._state_specs`).
What comes out is the same on all workers, and typed so. The axis must be Explicit: over
Auto axes JAX has no types.

JAX (0.10) refuses params of that type in elementwise operations with what is sharded
over "data", as in x @ w + b, and takes them in products. There, say first that b
lies along the examples, with y = x @ w:

    y + jax.reshard(jnp.broadcast_to(b, y.shape), jax.typeof(y).sharding)

Other axes of the mesh may shard leaves: each device reduces the parts that it holds.

Cost: what the reducer sends under `relaxjax.data_parallel`.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from relaxjax._core._arrays import require_arrays
from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._tree import leaf_name
from relaxjax._core.layouts._counted_once import require_counted_once
from relaxjax._core.layouts._sharding import as_typed
from relaxjax._core.layouts._state_specs import state_specs


def unreduced(params: Any, axis_name: AxisName) -> Any:
    """Params whose gradients come out unreduced, for a reducer in a plain `jit` step.

    Experimental: this may change in any release.

    Call it on the params that `jax.grad` differentiates by; the rest of the step stays.

    Args:
      params: a pytree of arrays on a mesh whose data axes are Explicit; they may be
        sharded over its other axes.
      axis_name: the reducer's axis, over which the batch is sharded, or axes.

    Returns:
      The same values, of type `P(..., reduced={axis_name})`.

    Raises:
      ValueError: the params lie on no mesh with this axis, the axis is Auto, or a leaf
        is sharded over it. Reducers refuse the gradient of a loss with a term of the
        params alone, unless it is marked by `relaxjax.counted_once`; they warn where
        the gradient comes from a `jax.jit` of its own, in which it is not seen.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> from jax.sharding import AxisType, PartitionSpec as P
      >>> mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Explicit,),
      ...                      devices=jax.devices()[:4])
      >>> tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.5))
      >>> @jax.jit
      ... def train_step(w, opt_state, x):
      ...     loss = lambda w: jnp.mean((x @ w - 1) ** 2)
      ...     grad = jax.grad(loss)(relaxjax.unreduced(w, "data"))
      ...     updates, opt_state = tx.update(grad, opt_state, w)
      ...     return optax.apply_updates(w, updates), opt_state
      >>> with jax.set_mesh(mesh):
      ...     w, x = jax.device_put((jnp.zeros(1), jnp.ones((8, 1))), (P(), P("data")))
      ...     w, opt_state = train_step(w, tx.init(w), x)
      >>> print(w)
      [1.]
    """
    names = axes_of(axis_name)

    def typed(path: Any, x: Any) -> Any:
        spec = _explicit_spec(leaf_name(path), x, names)
        kept = frozenset((*names, *spec.reduced))
        return jax.reshard(x, P(*spec.partitions, reduced=kept))

    return jax.tree.map_with_path(typed, params)


def opens_own_mapping(
    name: str,
    axis_name: AxisName,
    init: Callable[..., Any],
    update: Callable[..., Any],
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The same `init` and `update`, mapped over the devices where no axis is bound."""
    names = axes_of(axis_name)

    def made(params: Any) -> Any:
        require_arrays(params, name)
        mesh = _mesh_of(params, names)
        if mesh is None:
            return init(params)
        specs = jax.tree.map(_spec_of, params)

        def local(params: Any) -> Any:
            with as_typed(specs):
                return jax.tree.map(lambda x: x[None], init(params))

        kinds = jax.eval_shape(_mapped(local, mesh, (specs,), P(names)), params)
        out = state_specs(kinds, params, names)
        return jax.jit(_mapped(local, mesh, (specs,), out))(params)

    def updated(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        mesh = _mesh_of(updates, names)
        if mesh is None:
            return update(updates, state, params, **extra)
        _require_unreduced(name, updates, names)
        require_counted_once(name, updates, names)
        if extra.get("weight") is not None:
            raise ValueError(
                f"{name}: weight= with gradients of relaxjax.unreduced: their sum is "
                "the gradient already; put the weights into the loss"
            )
        n = math.prod(mesh.shape[axis] for axis in names)

        def local(updates: Any, state: Any, params: Any) -> Any:
            updates = jax.tree.map(lambda u: u * n, updates)
            state = jax.tree.map(lambda x: x[0], state)
            with as_typed(plain):
                out, state = update(updates, state, params, **extra)
            return out, jax.tree.map(lambda x: x[None], state)

        specs = jax.tree.map(_spec_of, (updates, state, params))
        plain = jax.tree.map(lambda x: P(*_spec_of(x).partitions), updates)
        return _mapped(local, mesh, specs, (plain, specs[1]))(updates, state, params)

    return made, updated


def _mapped(fn: Callable[..., Any], mesh: Any, specs: Any, out: Any) -> Any:
    return jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)


def _spec_of(x: Any) -> P:
    return jax.typeof(x).sharding.spec


def _mesh_of(tree: Any, names: tuple[str, ...]) -> Any:
    """The mesh of the leaves, if its axes `names` are Explicit and bound by nobody."""
    for name in names:
        try:
            lax.axis_size(name)
        except NameError:
            continue
        return None
    for x in jax.tree.leaves(tree):
        mesh = jax.typeof(x).sharding.mesh
        kinds = _kinds_of(mesh)
        if all(kinds.get(name) == AxisType.Explicit for name in names):
            return mesh
    return None


def _kinds_of(mesh: Any) -> dict[str, Any]:
    return dict(zip(mesh.axis_names, mesh.axis_types, strict=True))


def _explicit_spec(leaf: str, x: Any, names: tuple[str, ...]) -> P:
    """The spec of a leaf, which must lie whole along Explicit axes `names`."""
    sharding = jax.typeof(x).sharding
    kinds = _kinds_of(sharding.mesh)
    for name in names:
        if kinds.get(name) != AxisType.Explicit:
            what = "is Auto" if name in kinds else "is not one of the params' mesh"
            raise ValueError(
                f"unreduced: axis {name!r} {what} (leaf {leaf!r} is {jax.typeof(x)}), "
                "and only Explicit axes have types that say what is reduced. Make the "
                f"mesh with jax.make_mesh((8,), ({name!r},), axis_types=("
                "jax.sharding.AxisType.Explicit,)), and put params and batch on it "
                "inside jax.set_mesh(mesh)"
            )
    spec = sharding.spec
    over = {name for part in spec.partitions if part for name in axes_of(part)}
    for name in names:
        if name in over:
            raise ValueError(
                f"unreduced: leaf {leaf!r} ({jax.typeof(x)}) is sharded over the "
                f"reducer's own axis {name!r}: its gradient is scattered, and not "
                "reduced. Use relaxjax.fsdp.gathered, which sends both ways in codes; "
                "or shard params over another axis"
            )
    return spec


def refuse_unreduced(name: str, updates: Any) -> None:
    """Refuses gradients of `unreduced` for a method that needs a model on each worker.

    Raises:
      ValueError: JAX's type of a leaf says that it is a partial sum.
    """
    for path, x in jax.tree.leaves_with_path(updates):
        if _spec_of(x).unreduced:
            raise ValueError(
                f"{name}: the gradient of leaf {leaf_name(path)!r} ({jax.typeof(x)}) "
                f"is unreduced, as reducers in a plain jit step need it, and {name} "
                "trains a model on each worker: use relaxjax.data_parallel, without "
                "unreduced; or take a reducer, such as relaxjax.all_reduce"
            )


def _require_unreduced(name: str, updates: Any, axes: tuple[str, ...]) -> None:
    for path, x in jax.tree.leaves_with_path(updates):
        if missing := set(axes) - set(_spec_of(x).unreduced):
            raise ValueError(
                f"{name}: the gradient of leaf {leaf_name(path)!r} ({jax.typeof(x)}) "
                f"is already summed over {sorted(missing)}, by JAX: differentiate by "
                f"relaxjax.unreduced(params, {axes[0]!r}), so that it is left to "
                f"{name}"
            )
