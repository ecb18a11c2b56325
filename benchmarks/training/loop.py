"""Training runs that are compared: the metric of one, and the difference of pairs."""

from collections.abc import Sequence

import jax
import numpy as np
import optax
from scipy import stats

from relaxjax.tasks import Task, train_step_of
from relaxjax.workers._consensus import consensus
from relaxjax.workers._data_parallel import data_parallel
from relaxjax.workers._init import init
from relaxjax.workers._mesh import Emulation


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
      seed: of the batches.
    """
    step = data_parallel(train_step_of(task, tx), mesh, donate=True)
    state = init(tx, task.params, mesh)
    batches = task.batches(seed, task.batch_size)
    for _ in range(steps):
        *state, _ = step(*state, next(batches))
    metric = float(task.metric(consensus(state[0])))
    jax.clear_caches()  # no two runs share a program
    return metric


def worse(
    found: Sequence[float], base: Sequence[float], metric_name: str
) -> list[float | None]:
    """How much worse, relative: the mean of pairs and the ends of its 95 % interval.

    Args:
      found: metrics of runs.
      base: of the runs they are compared with, seed by seed; there may be more.
      metric_name: says whether more is better.

    Returns:
      Three numbers; of a single pair there is no interval.
    """
    sign = -1 if metric_name == "accuracy" else 1
    pairs = sign * (np.asarray(found) / np.asarray(base[: len(found)]) - 1)
    if len(pairs) < 2:
        return [float(pairs[0]), None, None]
    width = stats.t.ppf(0.975, len(pairs) - 1) * stats.sem(pairs)
    return [float(x) for x in pairs.mean() + np.array([0, -width, width])]
