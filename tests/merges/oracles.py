"""Merge rules on lists of vectors in float64, as their papers have them."""

from collections.abc import Callable
from typing import Any

import numpy as np

Vectors = list[np.ndarray]


def lower_median(x: Any) -> float:
    return sorted(x)[(len(x) - 1) // 2]


def clipped(x: Vectors, w: Any, *, cap: float | None = 2.0) -> Any:
    c, usual = lower_median([np.linalg.norm(v) for v in x]), lower_median(w)
    w = [min(one, np.inf if cap is None else cap * usual) for one in w]
    short = [v * min(1.0, c / (np.linalg.norm(v) or 1.0)) for v in x]
    return sum(a * v for a, v in zip(w, short, strict=True)) / sum(w)


def rda(x: Vectors, w: Any, *, cap: float | None = 2.0) -> Any:
    c, usual = lower_median([np.linalg.norm(v) for v in x]), lower_median(w)
    w = [min(one, np.inf if cap is None else cap * usual) for one in w]
    d = sum(a * v / (np.linalg.norm(v) or 1) for a, v in zip(w, x, strict=True))
    return c * d / np.linalg.norm(d)


def median(x: Vectors) -> Any:
    return np.median(np.stack(x), axis=0)


def trimmed(x: Vectors, b: int) -> Any:
    b = min(b, (len(x) - 1) // 2)
    return np.sort(np.stack(x), axis=0)[b : len(x) - b].mean(axis=0)


def geometric_median(x: Vectors, steps: int, nu: float = 1e-6) -> Any:
    z = np.mean(x, axis=0)
    for _ in range(steps):
        b = [1 / max(nu, float(np.linalg.norm(v - z))) for v in x]
        z = sum(a * v for a, v in zip(b, x, strict=True)) / sum(b)
    return z


def centered_clip(x: Vectors, radius: float, steps: int) -> Any:
    z = np.zeros_like(x[0])
    for _ in range(steps):
        far = [max(float(np.linalg.norm(v - z)), 1e-300) for v in x]
        moves = [(v - z) * min(1, radius / d) for v, d in zip(x, far, strict=True)]
        z = z + np.mean(moves, axis=0)
    return z


def nearest(x: Vectors, f: int, rule: Callable[[Vectors], Any]) -> Any:
    mixed = []
    for i, v in enumerate(x):
        far = [-1.0 if j == i else float(np.sum((v - u) ** 2)) for j, u in enumerate(x)]
        few = np.argsort(far, kind="stable")[: max(len(x) - f, 1)]
        mixed.append(np.mean([x[j] for j in few], axis=0))
    return rule(mixed)
