"""What `study.json` and the lines of `results.jsonl` hold; anything else is refused."""

from typing import Any

from relaxjax._core.foreign._types import Each, Maybe, wrong

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
OPTIONAL = {
    "messages_per_step": Maybe(float),
    "timing": Each(object),
    "table": [(int, object)],
}
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
    there = {
        "map": _map_of(study["methods"]),
        "seconds_source": Each(str),
        "left_out": [str],
    }
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
