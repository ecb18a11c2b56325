"""What values of JSON must be; anything else is refused in words.

A specification is a type, a list of one specification, a dictionary of them (all keys
must be there, others may be), or `Each` of one, by keys that are not known.
"""

import math
from typing import Any, NamedTuple


class Each(NamedTuple):
    """A dictionary from any names to values of one specification."""

    value: Any


class Maybe(NamedTuple):
    """A value that may be None, or of a specification."""

    value: Any


def wrong(spec: Any, value: Any, place: str = "it") -> str:
    """What is wrong about a value, in words; "" if nothing is."""
    if isinstance(spec, Maybe):
        return "" if value is None else wrong(spec.value, value, place)
    if isinstance(spec, Each):
        spec = dict.fromkeys(value, spec.value) if isinstance(value, dict) else {}
    if isinstance(spec, dict):
        if not isinstance(value, dict):
            return f"{place} must be an object, and is {_short(value)}"
        if missing := [name for name in spec if name not in value]:
            return f"{place} has no {missing[0]!r}"
        parts = [(s, value[name], f"{name!r}") for name, s in spec.items()]
    elif isinstance(spec, list | tuple):
        length = len(value) if isinstance(value, list) else -1
        if length < 0 or (isinstance(spec, tuple) and length != len(spec)):
            return f"{place} must be a list of its length, and is {_short(value)}"
        every = spec if isinstance(spec, tuple) else spec * length
        parts = [
            (s, x, f"{place}[{i}]")
            for i, (s, x) in enumerate(zip(every, value, strict=True))
        ]
    else:
        good = _is(spec, value)
        return "" if good else f"{place} must be {_NAMES[spec]}, and is {_short(value)}"
    return next(filter(None, (wrong(*part) for part in parts)), "")


_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    object: "anything",
}


def _is(kind: type, value: Any) -> bool:
    if kind in (str, bool, object):
        return isinstance(value, kind)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    whole = isinstance(value, int)
    return abs(value) < 1e300 and math.isfinite(value) and (whole or kind is float)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 40 else f"{text[:36]} ..."
