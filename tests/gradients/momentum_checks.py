"""Small matrices for momenta that workers keep apart, and steps of them."""

import functools
from typing import Any

import jax
import numpy as np

SHAPES = {"c": (2, 3, 7), "t": (9, 4), "w": (6, 11)}
CUT = {"c": (6, 7), "t": (9, 4), "w": (6, 11)}  # as matrices


def drawn(workers: int, steps: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Gradients of each step, stacked."""
    rng = np.random.default_rng(seed)
    return [
        {k: rng.normal(size=(workers, *s)).astype("f4") for k, s in SHAPES.items()}
        for _ in range(steps)
    ]


@functools.cache
def compiled(tx: Any) -> tuple[Any, Any]:
    def update(grads, state, extra):
        return tx.update(grads, state, **extra)

    def mapped(function: Any) -> Any:
        return jax.jit(jax.vmap(function, axis_name="data"))

    return mapped(tx.init), mapped(update)


def updated(tx: Any, grads: Any, state: Any = None, **extra: Any) -> Any:
    """What comes out of one step, and the next state, stacked."""
    init, update = compiled(tx)
    return update(grads, init(grads) if state is None else state, extra)
