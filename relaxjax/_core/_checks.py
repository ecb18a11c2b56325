"""Checks of single arguments: the message names argument, value, rule and remedy.

A traced number, as `optax.inject_hyperparams` passes it, is taken as it is.

`require_*` name the method that was called and raise ValueError, or TypeError for what
is of another kind. Trees of arrays are checked in `_core/_arrays.py`, fields of plain
data in `_core/foreign/_fields.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


def is_traced(number: Any) -> bool:
    """Whether a number's value is not known yet."""
    return isinstance(number, Tracer)


def is_any_traced(tree: Any) -> bool:
    """Whether it is of a traced function: a jitted one, or a loop's body."""
    return any(map(is_traced, jax.tree.leaves(tree)))


def is_off(value: Any) -> bool:
    """Whether a number is known to be 0; a traced one may be any."""
    return not is_traced(value) and value == 0


def require_known(caller: str, name: str, value: Any) -> None:
    """Refuses a traced number where a shape or a program depends on it."""
    if isinstance(value, jax.Array):
        raise ValueError(
            f"{caller}: {name} is a JAX array, as optax.inject_hyperparams makes of "
            "every number, and must be a number that is known when the step is "
            f"compiled. Keep it out of that, static_args=({name!r}, ...), or wrap the "
            "optimizer alone: optax.inject_hyperparams(optax.sgd)(...)"
        )


def is_whole(number: Any) -> bool:
    """Whether it is of an integer type, as 8 is and 8.0 is not."""
    return isinstance(number, int | np.integer)


def require_whole(
    caller: str,
    name: str,
    value: Any,
    least: int = 1,
    broken: Callable[[Any], str] | None = None,
) -> None:
    """Refuses anything but a whole number, `least` or more, and of a range.

    `broken` says which rule of a range a value breaks, as `Range.broken` does.
    """
    require_known(caller, name, value)
    if not is_whole(value) or value < least:
        raise ValueError(
            f"{caller}: {name}={value!r} must be a whole number, {least} or more"
        )
    if broken is not None and (rule := broken(value)):
        raise ValueError(f"{caller}: {name}={value!r} must be a whole number, {rule}")


def require_table(
    caller: str, name: str, value: Any, kinds: str, rule: str
) -> np.ndarray:
    """Refuses anything but known numbers [rows, columns]; `rule` says what must be.

    `kinds` are those of NumPy's dtypes.
    """
    if is_traced(value):
        require_known(caller, name, value)
    table = np.asarray(value)
    if table.ndim != 2 or not table.size or table.dtype.kind not in kinds:
        raise ValueError(
            f"{caller}: {name} of shape {table.shape} and dtype {table.dtype} must be "
            f"{rule}"
        )
    return table


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


def require_params(params: Any, caller: str, why: str) -> None:
    """Refuses a call of `update` without the params that it needs."""
    if params is None:
        raise ValueError(
            f"{caller}: update needs params, {why}; call tx.update(gradients, state, "
            "params)"
        )


def require_own_name_each(caller: str, names: Sequence[str]) -> None:
    """Refuses two leaves of one name, as a key with a slash makes them."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{caller}: two leaves are called {twice!r}; leave slashes out of keys"
        )


def check_type(name: str, value: Any, kind: type, remedy: str) -> None:
    """Refuses anything but an instance of a class; `remedy` says what to give."""
    if not isinstance(value, kind):
        raise TypeError(
            f"{name} must be of type {kind.__name__}, got {value!r}: {remedy}"
        )
