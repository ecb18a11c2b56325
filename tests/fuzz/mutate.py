"""Small damage to files: flipped bytes, cut ends, other values, keys that are gone."""

import copy
import json
import random
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**70, 10**400, 0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "\x00", [], [[]], {}, {"": 0}, [1, "a", None]),
)


def damaged(raw: bytes, rng: random.Random) -> bytes:
    """A file of JSON, or of lines of it, with one or two wrongs."""
    for _ in range(rng.randint(1, 2)):
        how = rng.choice((flipped, _cut, _deep, _values, _values, _values))
        raw = how(raw, rng)
    return raw


def flipped(raw: bytes, rng: random.Random) -> bytes:
    """Up to four other bytes."""
    found = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        if found:
            found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def _cut(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] if rng.random() < 0.7 else raw[:at] + raw[at // 2 :]


def _deep(raw: bytes, rng: random.Random) -> bytes:
    """More levels than a parser that recurses has, or a text without an end."""
    part = rng.choice((b"[", b'{"a":', b'"\\"', b"[" * 99 + b"]" * 99 + b","))
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + part * 20_000 + raw[at:]


def _values(raw: bytes, rng: random.Random) -> bytes:
    """Another value somewhere, or none; of a file of lines, in one of them."""
    lines = raw.split(b"\n") if raw.count(b"\n{") else [raw]
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        return raw
    lines[at] = json.dumps(changed(value, rng)).encode()
    return b"\n".join(lines)


def changed(value: Any, rng: random.Random) -> Any:
    """The value with one part replaced or removed."""
    value = copy.deepcopy(value)
    parts = [(value, key) for key in _keys(value)]
    for holder, key in parts:
        parts += [(holder[key], inner) for inner in _keys(holder[key])]
        if len(parts) > 400:
            break
    if not parts or rng.random() < 0.05:
        return rng.choice(ODD)
    holder, key = rng.choice(parts)
    if rng.random() < 0.3:
        del holder[key]
    else:
        holder[key] = rng.choice(ODD)
    return value


def _keys(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value)
    return list(range(len(value))) if isinstance(value, list) else []
