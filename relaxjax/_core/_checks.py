"""Checks of single arguments: the message names argument, value, rule and remedy.

A traced number, as `optax.inject_hyperparams` passes it, is taken as it is.

`require_*` name the method that was called and raise ValueError alone. `check_*` are
for fields of plain data: TypeError for another type, ValueError for a bad value; those
that return something return the value as a plain number.

Cost: O(1), or O(leaves).
"""

import math
from numbers import Real
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from relaxjax._core._axis import (
    AxisName,
    axes_of,
    axis_size,
    compiler_axes,
    tracks_vma,
    varying,
)
from relaxjax._core._tree import Layout, key_path, layout_of, leaf_name

if TYPE_CHECKING:
    from relaxjax._core.foreign._ranges import Range


def is_traced(number: Any) -> bool:
    """Whether a number's value is not known yet."""
    return isinstance(number, Tracer)


def is_any_traced(tree: Any) -> bool:
    """Whether it is of a traced function: a jitted one, or a loop's body."""
    return any(map(is_traced, jax.tree.leaves(tree)))


def require_known(caller: str, name: str, value: Any) -> None:
    """Refuses a traced number where a shape or a program depends on it."""
    if isinstance(value, jax.Array):
        raise ValueError(
            f"{caller}: {name} is a JAX array, as optax.inject_hyperparams makes of "
            "every number, and must be a number that is known when the step is "
            f"compiled. Keep it out of that, static_args=({name!r}, ...), or wrap the "
            "optimizer alone: optax.inject_hyperparams(optax.sgd)(...)"
        )


def require_whole(
    caller: str,
    name: str,
    value: Any,
    least: int = 1,
    among: "Range | None" = None,
) -> None:
    """Refuses anything but a whole number, `least` or more, and of a range."""
    require_known(caller, name, value)
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"{caller}: {name}={value!r} must be a whole number, {least} or more"
        )
    if among is not None and (rule := among.broken(value)):
        raise ValueError(f"{caller}: {name}={value!r} must be a whole number, {rule}")


def require_fraction(caller: str, name: str, value: Any, remedy: str = "") -> None:
    """Refuses numbers outside (0, 1]."""
    if not is_traced(value) and not 0 < value <= 1:
        raise ValueError(f"{caller}: {name}={value} must be in (0, 1]{remedy}")


def require_momentum(caller: str, momentum: Any) -> None:
    """Refuses numbers outside [0, 1)."""
    if not is_traced(momentum) and not 0 <= momentum < 1:
        raise ValueError(
            f"{caller}: momentum={momentum} must be in [0, 1); 0 turns it off, 0.9 is "
            "usual"
        )


def check_count(
    name: str,
    value: Any,
    *,
    least: int = 1,
    remedy: str = "",
    among: "Range | None" = None,
) -> int:
    """Returns a whole number of a range; `remedy` says what to give instead."""
    tail = f": {remedy}" if remedy else ""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {value!r}{tail}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}{tail}")
    if among is not None and value not in among:
        raise ValueError(f"{name} must be {among.broken(value)}, got {value}{tail}")
    return int(value)


def check_seconds(
    name: str, seconds: float | None, among: "Range | None" = None
) -> float:
    """Returns a time as a float: finite, 0 or more, within a range, and not None."""
    from relaxjax._core.foreign._ranges import SECONDS

    if seconds is None:
        raise ValueError(f"{name} has no time: give its seconds (0.0 if it is free)")
    _check_real(name, seconds, "a number of seconds")
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{name} must be finite and >= 0 seconds, got {seconds}")
    _check_among(name, " seconds", seconds, among or SECONDS)
    return float(seconds)


def check_rate(name: str, unit: str, rate: float) -> None:
    """Refuses anything but a positive number; it may be infinite."""
    from relaxjax._core.foreign._ranges import RATE

    _check_real(name, rate, f"a number of {unit}")
    if not rate > 0:
        raise ValueError(f"{name} must be > 0 {unit}, got {rate}")
    _check_among(name, f" {unit}", rate, RATE)


def check_bytes(name: str, value: Any, *, least: float = 0) -> None:
    """Refuses anything but a finite number, `least` or more; it may be fractional."""
    from relaxjax._core.foreign._ranges import BYTES

    _check_real(name, value, "a number")
    if not least <= value < math.inf:
        raise ValueError(f"{name} must be at least {least} and finite, got {value}")
    _check_among(name, "", value, BYTES)


def _check_among(name: str, unit: str, value: Any, among: "Range") -> None:
    if rule := among.broken(value):
        raise ValueError(f"{name} must be {rule}{unit}, got {value}")


def _check_real(name: str, value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {what}, got {value!r}")
    try:
        float(value)
    except OverflowError:
        raise ValueError(f"{name} must be {what} below 2**1024") from None


def check_type(name: str, value: Any, kind: type, remedy: str) -> None:
    """Refuses anything but an instance of a class; `remedy` says what to give."""
    if not isinstance(value, kind):
        raise TypeError(
            f"{name} must be of type {kind.__name__}, got {value!r}: {remedy}"
        )


def require_transformation(caller: str, name: str, value: Any) -> None:
    """Refuses what is not a gradient transformation, such as an axis name."""
    if callable(getattr(value, "init", None)) and callable(
        getattr(value, "update", None)
    ):
        return
    call = ": call it, as in optax.adam(1e-3)" if callable(value) else ""
    raise TypeError(
        f"{caller}: {name}={value!r:.60} must be a gradient transformation, such as "
        f"optax.adam(1e-3) or optax.chain(...){call}. Are two arguments in the "
        "other's place?"
    )


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
            raise ValueError(
                f"{caller}: leaf {key_path(path)!r} is {dtype}, {rule}. Keep it out of "
                "the params that are trained; or give the optimizer the others alone, "
                f"relaxjax.{caller} with it: optax.partition({{'trained': optimizer, "
                "'kept': optax.set_to_zero()}, labels)"
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


def require_params(params: Any, caller: str, why: str) -> None:
    """Refuses a call of `update` without the params that it needs."""
    if params is None:
        raise ValueError(
            f"{caller}: update needs params, {why}; call tx.update(gradients, state, "
            "params)"
        )


def require_own(caller: str, axis_name: AxisName, layout: Layout, updates: Any) -> None:
    """Refuses updates that are not each worker's own, whole, of the tree of `init`."""
    axis_size(axis_name, caller)
    require_same(layout, updates, caller)
    require_dtypes(updates, caller, "it")
    require_local(updates, axis_name, caller)
    require_no_compiler_axes(caller, "it")
