"""Checks of single arguments: the message names argument, value, rule and remedy.

Cost: O(1).
"""

import math
from numbers import Real
from typing import Any


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
