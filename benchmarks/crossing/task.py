"""What is trained in each cell: two layers, four workers whose data differ, six steps.

Rows of a worker are drawn around a center of its own, so that models part where they
can, and no two workers have the same gradient, loss or curvature.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WORKERS = 4
ROWS = 6  # of a worker
STEPS = 6
EVERY = 2  # steps between meetings, where models meet

Params = dict[str, jax.Array]


class Batch(NamedTuple):
    """Rows of one worker, or of all."""

    x: Any  # [rows, 6]
    y: Any  # [rows, 3]


def start() -> Params:
    """Two matrices and a vector, none of them zero."""
    rng = np.random.default_rng(0)
    sizes = {"hidden": (6, 8), "bias": (8,), "out": (8, 3)}
    draws = {k: 0.5 * rng.normal(size=s) for k, s in sizes.items()}
    return {k: jnp.asarray(x, jnp.float32) for k, x in draws.items()}


def batches() -> list[Batch]:
    """The rows of all workers in each step, [workers * rows, ...]."""
    rng = np.random.default_rng(1)
    centers = np.repeat(rng.normal(size=(WORKERS, 6)), ROWS, axis=0)
    made = []
    for _ in range(STEPS):
        x = rng.normal(size=(WORKERS * ROWS, 6)) + 0.5 * centers
        y = rng.normal(size=(WORKERS * ROWS, 3)) + centers[:, :3]
        made.append(Batch(x.astype(np.float32), y.astype(np.float32)))
    return made


def share(batch: Batch, worker: int) -> Batch:
    """A worker's own rows."""
    rows = slice(worker * ROWS, (worker + 1) * ROWS)
    return Batch(batch.x[rows], batch.y[rows])


def loss_fn(params: Params, batch: Batch) -> jax.Array:
    """Mean squared error."""
    hidden = jnp.tanh(batch.x @ params["hidden"] + params["bias"])
    return jnp.mean((hidden @ params["out"] - batch.y) ** 2)
