"""Checks of single arguments: the message names argument, value, rule and remedy.

A traced number, as `optax.inject_hyperparams` passes it, is taken as it is.

Cost: O(1), or O(leaves).
"""

import math
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from relaxjax._core._axis import compiler_axes


def is_traced(number: Any) -> bool:
    """Whether its value is not known yet."""
    return isinstance(number, Tracer)


def require_whole(caller: str, name: str, value: Any, least: int = 1) -> None:
    """Refuses what is no whole number, or one that is too small."""
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"{caller}: {name}={value!r} must be a whole number, {least} or more"
        )


def require_fraction(caller: str, name: str, value: Any, remedy: str = "") -> None:
    """Refuses numbers outside (0, 1]."""
    if not is_traced(value) and not 0 < value <= 1:
        raise ValueError(f"{caller}: {name}={value} must be in (0, 1]{remedy}")


def require_momentum(caller: str, momentum: Any) -> None:
    """Refuses numbers outside [0, 1)."""
    if not is_traced(momentum) and not 0 <= momentum < 1:
        raise ValueError(
            f"{caller}: momentum={momentum} must be in [0, 1); 0 is none, 0.9 is usual"
        )


def check_seconds(argument: str, seconds: float | None) -> float:
    """Returns `seconds` as a float.

    Args:
        argument: what the time belongs to, for the message.
        seconds: the time.

    Raises:
        TypeError: it is not a number.
        ValueError: it is missing, negative, infinite or NaN.
    """
    if seconds is None:
        raise ValueError(
            f"{argument} has no time: give its seconds (0.0 if it is free)"
        )
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        raise TypeError(f"{argument} must be a number of seconds, got {seconds!r}")
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{argument} must be finite and >= 0 seconds, got {seconds}")
    return float(seconds)


def check_rate(name: str, unit: str, rate: float) -> None:
    """Refuses a rate that is no positive number.

    Args:
        name: of the argument.
        unit: for the message.
        rate: to be checked.

    Raises:
        TypeError: it is not a number.
        ValueError: it is zero, negative or NaN.
    """
    if isinstance(rate, bool) or not isinstance(rate, Real):
        raise TypeError(f"{name} must be a number of {unit}, got {rate!r}")
    if not rate > 0:
        raise ValueError(f"{name} must be > 0 {unit}, got {rate}")


def check_bytes(name: str, value: Any, *, least: float = 0) -> None:
    """Refuses what is no finite number of bytes; fractions are allowed.

    Args:
        name: of the argument.
        value: to be checked.
        least: the smallest that is allowed.

    Raises:
        TypeError: it is not a number.
        ValueError: it is too small, infinite or NaN.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not least <= float(value) < math.inf:
        raise ValueError(f"{name} must be at least {least} and finite, got {value}")


def check_count(name: str, value: Any, *, least: int = 1, remedy: str = "") -> int:
    """Returns `value`, a whole number.

    Args:
        name: of the argument.
        value: to be checked.
        least: the smallest that is allowed.
        remedy: what to give instead, for the message.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is too small.
    """
    tail = f": {remedy}" if remedy else ""
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole:
        raise TypeError(f"{name} must be a whole number, got {value!r}{tail}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}{tail}")
    return int(value)


def check_type(name: str, value: Any, kind: type, remedy: str) -> None:
    """Refuses what is no instance of a class.

    Args:
        name: of the argument.
        value: to be checked.
        kind: the class.
        remedy: what to give instead, for the message.

    Raises:
        TypeError: it is not one.
    """
    if not isinstance(value, kind):
        raise TypeError(
            f"{name} must be of type {kind.__name__}, got {value!r}: {remedy}"
        )


def require_dtypes(tree: Any, caller: str, compressor: str | None) -> None:
    """Refuses leaves that have no mean, or that what compresses them does not take."""
    kind = jnp.inexact if compressor is None else jnp.floating
    for path, leaf in jax.tree.leaves_with_path(tree):
        dtype = jax.typeof(leaf).dtype
        if not jnp.issubdtype(dtype, kind):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            what = (
                "which has no mean: only floating (or complex) leaves are reduced"
                if compressor is None
                else f"and {compressor} compresses real floating leaves only"
            )
            raise ValueError(
                f"{caller}: leaf {name!r} is {dtype}, {what}. Keep it out of the "
                "params that are trained, or wrap: "
                f"optax.masked(relaxjax.{caller}(...), mask)"
            )


def require_no_compiler_axes(caller: str, how: str) -> None:
    """Refuses to pack leaves that the compiler shards."""
    if compiler_axes():
        raise ValueError(
            f"{caller}: {how} packs leaves into flat buckets, "
            f"which would gather what the compiler shards over {compiler_axes()}. Pass "
            "specs= (a PartitionSpec over those axes for each leaf), or use "
            "all_reduce with algorithm='psum'"
        )
