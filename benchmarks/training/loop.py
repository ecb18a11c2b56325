"""Training runs that are compared: the metric of one, and the difference of pairs."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax
from scipy import stats

from relaxjax import Emulation, consensus, data_parallel, init
from relaxjax.tasks import Task, train_step_of


def held_out(
    task: Task,
    tx: optax.GradientTransformation,
    mesh: Emulation,
    *,
    steps: int,
    seed: int,
) -> float:
    """The metric of the workers' consensus after training from the task's start.

    Args:
      task: data and model.
      tx: relaxation and optimizer.
      mesh: the workers.
      steps: number of steps.
      seed: seed of the batches.
    """
    step = data_parallel(train_step_of(task, tx), mesh, donate=True)
    state = init(tx, task.params, mesh)
    batches = task.batches(seed, task.batch_size)
    for _ in range(steps):
        *state, _ = step(*state, next(batches))
    metric = float(task.metric(consensus(state[0])))
    jax.clear_caches()  # no two runs share a program
    return metric


def sign(metric_name: str) -> int:
    """-1 if more of the metric is better, else 1."""
    return -1 if metric_name == "accuracy" else 1


def worse(
    metrics: Sequence[float], base: Sequence[float], metric_name: str
) -> Sequence[float | None]:
    """How much worse, relative: the mean of pairs and the ends of its 95 % interval.

    Args:
      metrics: metrics of runs.
      base: metrics of the runs they are compared with, seed by seed; or more of them.
      metric_name: name of the metric, which says whether more is better.

    Returns:
      Three numbers; a single pair has no interval.
    """
    pairs = sign(metric_name) * (np.asarray(metrics) / base[: len(metrics)] - 1)
    if len(pairs) < 2:
        return [float(pairs[0]), None, None]
    return interval(pairs)


def interval(pairs: np.ndarray) -> list[float]:
    """The mean and the ends of its 95 % interval (Student's t)."""
    width = stats.t.ppf(0.975, len(pairs) - 1) * stats.sem(pairs)
    return [float(x) for x in pairs.mean() + np.array([0, -width, width])]


def worse_cells(row: dict[str, Any]) -> tuple[str, str]:
    """A row's `worse` in a table, and its interval."""
    mean, low, high = row["worse"]
    return f"{mean:+.2%}", "" if low is None else f"[{low:+.2%}, {high:+.2%}]"
