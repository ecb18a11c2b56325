"""Quadratics whose minima differ: where each method comes to rest, and where it must.

Worker i's loss is |x - t_i|^2 / 2, the sum's minimum the mean of the t_i. With weights
W and the rate lr, models at rest obey

    gossip               x = W (x - lr (x - t)):  x = (I - (1 - lr) W)^-1 lr W t
    combine_then_adapt   x = W x - lr (x - t):    x = ((1 + lr) I - W)^-1 lr t
    quasi-global momentum, push-sum with a doubly stochastic W: as gossip
    corrected methods    x = mean(t)
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from benchmarks.training.heterogeneity_methods import AXIS, transformation
from relaxjax.topology import TOPOLOGIES

RATE, ELEMENTS, STEPS = 0.1, 32, 4000
Rest = Callable[[np.ndarray, np.ndarray], np.ndarray]


def quadratics(workers: int) -> list[dict[str, Any]]:
    """A row for each method: how far its models rest from the minimum, and theory.

    Distances are the root of the mean square over workers and elements.
    """
    targets = np.random.default_rng(0).normal(size=(workers, ELEMENTS))
    mean, rows = targets.mean(axis=0), []
    for name, (method, rest, options) in METHODS.items():
        sgd = optax.sgd(RATE)
        tx = transformation(method, sgd, RATE, workers, **options)
        weights = TOPOLOGIES[method.partition("@")[2]](workers).matrix()
        measured = _at_rest(tx, targets) - mean
        expected = rest(weights, targets) - mean
        rows.append(
            {
                "method": name,
                "found": float(np.sqrt(np.mean(measured**2))),
                "theory": float(np.sqrt(np.mean(expected**2))),
                "apart": float(np.abs(measured - expected).max()),
            }
        )
    return rows


def _at_rest(tx: Any, targets: np.ndarray) -> np.ndarray:
    """The models after training: [workers, elements]."""

    def worker(target: jax.Array) -> jax.Array:
        def step(carry: Any, _: None) -> tuple[Any, None]:
            x, state = carry
            updates, state = tx.update(x - target, state, x)
            return (x + updates, state), None

        x = jnp.zeros(ELEMENTS)
        return lax.scan(step, (x, tx.init(x)), length=STEPS)[0][0]

    models = jax.jit(jax.vmap(worker, axis_name=AXIS))(targets.astype(np.float32))
    return np.asarray(models, np.float64)


def _adapted(w: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.linalg.solve(np.eye(len(w)) - (1 - RATE) * w, RATE * w @ targets)


def _combined(w: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.linalg.solve((1 + RATE) * np.eye(len(w)) - w, RATE * targets)


def _mean(w: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.broadcast_to(targets.mean(axis=0), (len(w), targets.shape[1]))


METHODS: dict[str, tuple[str, Rest, dict[str, float]]] = {
    **{f"gossip, {g}": (f"gossip@{g}", _adapted, {}) for g in ("ring", "exponential")},
    "gossip, star": ("gossip@star", _adapted, {}),
    "combine_then_adapt, ring": ("combine_then_adapt@ring", _combined, {}),
    "quasi_global_momentum, ring": (
        "quasi_global_momentum@ring",
        _adapted,
        {"momentum": 0.9},
    ),
    "push_sum, ring": ("push_sum@ring", _adapted, {}),
    "exact_diffusion, lazy ring": ("exact_diffusion@ring", _mean, {}),
    "gradient_tracking, ring": ("gradient_tracking@ring", _mean, {}),
    "relay_sum, chain": ("relay_sum@chain", _mean, {}),
}
"""Methods as `relaxjax train` spells them, where they rest, and their options."""
