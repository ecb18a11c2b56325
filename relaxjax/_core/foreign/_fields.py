"""Checks of fields of plain data, such as a link's rate or a study's steps.

Each names field, value and rule: TypeError for another type, ValueError for a bad
value. Those that return something return the value as a plain number.
"""

import math
from numbers import Real
from typing import Any

from relaxjax._core.foreign._ranges import BYTES, RATE, SECONDS, Range


def check_count(
    name: str,
    value: Any,
    *,
    least: int = 1,
    remedy: str = "",
    among: Range | None = None,
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
    name: str, seconds: float | None, among: Range | None = None
) -> float:
    """Returns a time as a float: finite, 0 or more, within a range, and not None."""
    if seconds is None:
        raise ValueError(f"{name} has no time: give its seconds (0.0 if it is free)")
    _check_real(name, seconds, "a number of seconds")
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{name} must be finite and >= 0 seconds, got {seconds}")
    _check_among(name, " seconds", seconds, among or SECONDS)
    return float(seconds)


def check_rate(name: str, unit: str, rate: float) -> None:
    """Refuses anything but a positive number; it may be infinite."""
    _check_real(name, rate, f"a number of {unit}")
    if not rate > 0:
        raise ValueError(f"{name} must be > 0 {unit}, got {rate}")
    _check_among(name, f" {unit}", rate, RATE)


def check_bytes(name: str, value: Any, *, least: float = 0) -> None:
    """Refuses anything but a finite number, `least` or more; it may be fractional."""
    _check_real(name, value, "a number")
    if not least <= value < math.inf:
        raise ValueError(f"{name} must be at least {least} and finite, got {value}")
    _check_among(name, "", value, BYTES)


def _check_among(name: str, unit: str, value: Any, among: Range) -> None:
    if rule := among.broken(value):
        raise ValueError(f"{name} must be {rule}{unit}, got {value}")


def _check_real(name: str, value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {what}, got {value!r}")
    try:
        float(value)
    except OverflowError:
        raise ValueError(f"{name} must be {what} below 2**1024") from None
