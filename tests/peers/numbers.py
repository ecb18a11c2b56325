"""Gradients and targets that both sides compute with, from seeds alone."""

import numpy as np

WORKERS, STEPS = 3, 8
SHAPES = {"w": (24, 10), "b": (10,), "v": (12, 16)}
PLAIN = 2
"""First steps of PowerSGD in which gradients travel as they are."""
WARM_UP, PERIOD, RATE = 3, 2, 0.125
"""Post-local SGD."""

Arrays = dict[str, np.ndarray]


def draw(seed: int) -> Arrays:
    """Standard normal numbers in each shape."""
    rng = np.random.default_rng(seed)
    return {k: rng.normal(size=s).astype(np.float32) for k, s in SHAPES.items()}


def gradient(worker: int, step: int) -> Arrays:
    """A worker's gradient in a step: a part that lasts, and a part that does not."""
    lasting, new = draw(worker), draw(100 + WORKERS * step + worker)
    return {k: lasting[k] + new[k] / 2 for k in SHAPES}
