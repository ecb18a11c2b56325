"""What `study.json` and the lines of `results.jsonl` hold; anything else is refused.

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


NUMBERS = Each(float)
POINT = (int, Maybe(float), Maybe(float))
RECORD = {
    "key": str,
    "method": str,
    "phase": str,
    "seed": int,
    "learning_rate": float,
    "options": NUMBERS,
    "steps": int,
    "workers": int,
    "batch_size": int,
    "curve": [POINT],
    "validation": Maybe(float),
    "test": Maybe(float),
    "diverged": bool,
    "stopped_at": Maybe(int),
    "bytes_per_step": float,
}
OPTIONAL = {"messages_per_step": Maybe(float), "timing": Each(object)}
STUDY = {
    "version": str,
    "task": {
        "name": str,
        "metric_name": str,
        "better": str,
        "data": {"bytes": int, "sha256": str},
        "file": str,
        "split_note": str,
        "params": int,
    },
    "methods": [str],
    "seeds": [int],
    "tune": int,
    "tune_seeds": [int],
    "workers": int,
    "steps": int,
    "batch_size": int,
    "networks": [{"name": str, "latency": float, "bandwidth": float}],
    "compute_seconds": float,
    "seconds": Each(NUMBERS),
    "conditions": Each(object),
    "command": str,
    "target": Maybe(float),
}


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


def wrong_study(study: Any) -> str:
    """What is wrong about what `study.json` holds; "" if nothing is."""
    if found := wrong(STUDY, study):
        return found
    if not study["methods"] or len(set(study["methods"])) < len(study["methods"]):
        return "'methods' must be some names, each of them once"
    if study["task"]["better"] not in ("higher", "lower"):
        return "'better' must be 'higher' or 'lower'"
    names = {network["name"] for network in study["networks"]}
    for method in study["methods"]:
        if names - set(study["seconds"].get(method, ())):
            return f"'seconds' has no predictions of {method!r} for some network"
    there = {"map": _map_of(study["methods"]), "seconds_source": Each(str)}
    return wrong({name: s for name, s in there.items() if name in study}, study)


def _map_of(methods: list[str]) -> dict[str, Any]:
    grid = {method: [[float]] for method in methods}
    return {"gbps": [float], "latency_ms": [float], "seconds": grid}


def wrong_record(record: Any) -> str:
    """What is wrong about a line of `results.jsonl`; "" if nothing is."""
    if found := wrong(RECORD, record):
        return found
    there = {name: s for name, s in OPTIONAL.items() if name in record}
    return wrong(there, record)
