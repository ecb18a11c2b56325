"""Studies made of numbers, for tests that need no training."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

NETWORKS = {"1gbit,10ms": (0.01, 1.25e8), "25gbit,50us": (5e-5, 3.125e9)}
COMPUTE = 0.012
GBPS, LATENCY_MS = (
    (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    (0.005, 0.05, 0.5, 5.0, 50.0),
)
METHODS: Mapping[str, tuple[float, float, float, float]] = {
    "all_reduce": (5_852_672.0, 14.0, 0.970, 40.0),
    "all_reduce+sign+ef14@two_shot": (182_896.0, 14.0, 0.968, 55.0),
    "power_sgd": (96_240.0, 24.0, 0.966, 60.0),
    "local_sgd": (365_792.0, 0.9, 0.962, 48.0),
    "diloco+quantize4+ef14": (45_724.0, 0.5, 0.955, 70.0),
    "gossip@ring": (2_926_336.0, 2.0, 0.958, 45.0),
}
"""Bytes and messages of a step, final metric, and steps that the curve takes."""
RATES = (0.001, 0.003, 0.009)


def study(
    methods: Sequence[str] = tuple(METHODS),
    *,
    seeds: Sequence[int] = (101, 102, 103),
    **changes: Any,
) -> dict[str, Any]:
    """What stands in `study.json`."""
    return {
        "version": "0.2.0",
        "task": {
            "name": "wine",
            "metric_name": "accuracy",
            "better": "higher",
            "data": {"bytes": 18_512, "sha256": "ab" * 32},
            "file": "wine.py",
            "file_sha256": "cd" * 32,
            "split_note": "A tenth of the training rows, drawn by seed 0, is kept for "
            "validation.",
            "params": 731_584,
        },
        "methods": list(methods),
        "seeds": list(seeds),
        "tune": 3,
        "tune_seeds": [1],
        "rates": {"0": list(RATES)},
        "workers": 8,
        "steps": 400,
        "batch_size": 128,
        "networks": [
            {"name": name, "latency": late, "bandwidth": wide}
            for name, (late, wide) in NETWORKS.items()
        ],
        "compute_seconds": COMPUTE,
        "compute_source": "measured: median step of one worker's share",
        "seconds": {
            method: {name: seconds(method, *link) for name, link in NETWORKS.items()}
            for method in methods
            if method in METHODS
        },
        "seconds_source": dict.fromkeys(methods, "plan"),
        "map": {
            "gbps": list(GBPS),
            "latency_ms": list(LATENCY_MS),
            "seconds": {
                method: [
                    [seconds(method, late / 1e3, wide * 1e9 / 8) for wide in GBPS]
                    for late in LATENCY_MS
                ]
                for method in methods
                if method in METHODS
            },
        },
        "conditions": {"machine": "x86_64", "cores": 2, "jax": "0.10.0"},
        "command": "relaxjax compare wine.py --relaxation all_reduce --seeds 3",
        "target": None,
        **changes,
    }


def seconds(method: str, latency: float, bandwidth: float) -> float:
    """A step: computation, then messages."""
    size, messages, _, _ = METHODS[method]
    return COMPUTE + messages * latency + size / bandwidth


def run(
    method: str,
    seed: int,
    *,
    phase: str = "report",
    rate: float = 0.003,
    steps: int = 400,
    **changes: Any,
) -> dict[str, Any]:
    """One line of `results.jsonl`, with a curve that rises to the final metric."""
    size, messages, final, slow = METHODS.get(method, METHODS["all_reduce"])
    noise = random.Random(f"{method} {seed} {rate}")
    shared = random.Random(seed).gauss(0, 0.004)  # the batches, the same for all
    final += shared + noise.gauss(0, 0.001) - 0.02 * abs(math.log(rate / 0.003))
    curve = [
        [step, 2.3 * math.exp(-step / slow), final - 0.85 * math.exp(-step / slow)]
        for step in range(20, steps + 1, 20)
    ]
    return {
        "key": f"{noise.getrandbits(64):016x}",
        "method": method,
        "phase": phase,
        "seed": seed,
        "learning_rate": rate,
        "options": {"sync_every": 16.0} if "diloco" in method else {},
        "steps": steps,
        "workers": 8,
        "batch_size": 128,
        "curve": curve,
        "validation": curve[-1][2],
        "test": curve[-1][2] - 0.004 if phase == "report" else None,
        "diverged": False,
        "stopped_at": None,
        "bytes_per_step": size,
        "messages_per_step": messages,
        "exchange": {},
        "timing": {"seconds": 4.2, "compile_seconds": 1.1, "began": "2026-01-01"},
        **changes,
    }


def lost(method: str, seed: int, *, at: int = 120, **changes: Any) -> dict[str, Any]:
    """A run that diverges."""
    whole = run(method, seed, **changes)
    curve = [row if row[0] < at else [row[0], None, None] for row in whole["curve"]]
    return whole | {"curve": curve, "validation": None, "test": None, "diverged": True}


def records(of: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every run of a study: three rates a method, then the best one on fresh seeds."""
    tuning = [
        run(method, seed, phase="tune", rate=rate)
        for method in of["methods"]
        for rate in RATES
        for seed in of["tune_seeds"]
    ]
    report = [run(method, seed) for method in of["methods"] for seed in of["seeds"]]
    return tuning + report
