"""Terms of a loss that are of params alone, in a plain `jit` with unreduced gradients.

A term such as a weight decay, of params of type `P(reduced={"data"})` and no example,
has that type too, and so has a loss with it. `jax.grad` then starts from a constant 1
that each device counts as its own part: compiled by `jax.jit` (JAX 0.10 to 0.12), all n
devices hold 1 where one should hold it and the others 0, and the whole gradient is n
times too large. Without `jit` it is right; so is a 1 that the compiler does not know.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import jax
from jax import lax
from jax.core import Tracer
from jax.extend import core
from jax.sharding import PartitionSpec as P

from relaxjax._core._jaxprs import programs_of


def counted_once(term: jax.Array) -> jax.Array:
    """A term of the loss that is of params alone, and counts once for all devices.

    Experimental: this may change in any release.

    For losses of `relaxjax.unreduced` params: with a term that no example takes part
    in, such as a weight decay, the gradient comes out n times too large under `jax.jit`
    unless the term is marked so; reducers refuse it. Anywhere else, under
    `relaxjax.data_parallel` or in your own `shard_map`, it is the identity.

    Args:
      term: the term, an array of any shape; or the whole loss.

    Returns:
      The same value, of a type that examples have too.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> from jax.sharding import AxisType, PartitionSpec as P
      >>> mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Explicit,),
      ...                      devices=jax.devices()[:4])
      >>> tx = relaxjax.all_reduce("data")
      >>> def loss(w, x):
      ...     return jnp.mean(jnp.exp(x @ w)) + relaxjax.counted_once(jnp.sum(w * w))
      >>> @jax.jit
      ... def gradient(w, x):
      ...     gradient = jax.grad(loss)(relaxjax.unreduced(w, "data"), x)
      ...     return tx.update(gradient, tx.init(w))[0]
      >>> with jax.set_mesh(mesh):
      ...     w, x = jax.device_put((jnp.ones(1), jnp.zeros((8, 1))), (P(), P("data")))
      ...     print(gradient(w, x))
      [2.]
    """
    spec = jax.typeof(term).sharding.spec
    if not spec.reduced:
        return term
    whole = P(*spec.partitions)
    part = P(*spec.partitions, unreduced=spec.reduced)

    @jax.custom_vjp
    def once(term: jax.Array) -> jax.Array:
        return jax.reshard(term, whole)

    def forward(term: jax.Array) -> tuple[jax.Array, None]:
        return jax.reshard(term, whole), None

    def backward(_: None, cotangent: jax.Array) -> tuple[jax.Array]:
        hidden = lax.optimization_barrier(cotangent)  # a constant no longer
        return (jax.reshard(hidden, part),)

    once.defvjp(forward, backward)
    return once(term)


def require_counted_once(name: str, updates: Any, axes: tuple[str, ...]) -> None:
    """Refuses gradients that start from a constant which all devices count.

    What is traced by `jax.jit` is looked at, where it keeps what it has traced. Warns
    of gradients that come from another program, which is not seen.
    """
    if any(_is_counted_by_all(*step, axes) for step in _steps_before(updates)):
        raise ValueError(
            f"{name}: the loss has a term of the params alone (a weight decay, say), "
            f"which under jax.jit is counted by each device along {sorted(axes)}: all "
            "of the gradient would be too large by their number. Mark the term with "
            "relaxjax.counted_once(term); or take it of the params before "
            f"relaxjax.unreduced, and add its gradient after {name}"
        )

    if any(_is_from_elsewhere(leaf, axes) for leaf in jax.tree.leaves(updates)):
        warnings.warn(
            f"{name}: the gradient was not made in the jax.jit program of the update, "
            "so that its making is not seen. If the loss has a term of the params only "
            "(a weight decay, say), all of it may be too large, by the devices along "
            f"{sorted(axes)}. Make the gradient and the update in one jax.jit; or mark "
            "the loss, relaxjax.counted_once(loss), and filter this warning",
            stacklevel=2,
        )


def _is_from_elsewhere(leaf: Any, axes: tuple[str, ...]) -> bool:
    """Whether a partial sum is an argument of the program, or an array."""
    mesh = jax.typeof(leaf).sharding.mesh
    if all(mesh.shape[axis] == 1 for axis in axes):
        return False
    return not isinstance(leaf, Tracer) or getattr(leaf, "parent", 0) is None


def _steps_before(updates: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(primitive, what goes in, what comes out) of all that gradients are made by."""
    seen: set[int] = set()
    found = list(jax.tree.leaves(updates))
    while found:
        eqn = getattr(found.pop(), "parent", None)
        if eqn is None or id(eqn) in seen:
            continue
        seen.add(id(eqn))
        ins = [getattr(x, "val", x) for x in eqn.in_tracers]
        yield eqn.primitive, ins, eqn.outvars
        found.extend(eqn.in_tracers)
        programs = list(programs_of(eqn.params))
        while programs:
            for inner in programs.pop().jaxpr.eqns:
                yield inner.primitive, inner.invars, inner.outvars
                programs.extend(programs_of(inner.params))


def _is_counted_by_all(
    primitive: Any, ins: list[Any], outs: list[Any], axes: tuple[str, ...]
) -> bool:
    """Whether a constant becomes a part of a sum on each device."""
    if primitive.name != "reshard" or not isinstance(ins[0], core.Literal):
        return False
    sharding = outs[0].aval.sharding
    over = sharding.spec.unreduced & set(axes)
    many = any(sharding.mesh.shape[axis] > 1 for axis in over)
    return many and bool(ins[0].val != 0)
