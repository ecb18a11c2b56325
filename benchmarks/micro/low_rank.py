"""What PowerSGD computes in a step, and keeps, beside plain Adam.

One worker trains a character model of 3.2 million parameters. The second program also
makes the low-rank approximation of its gradient, with all that PowerSGD does but the
two messages. State is what lives from step to step, temporary memory what XLA says.
"""

import functools
from typing import Any

import jax
import optax

from benchmarks.measure import interleaved, quartiles, ratio
from benchmarks.report import conditions, save, show
from relaxjax.gradients._low_rank import approximate
from relaxjax.gradients._matricize import matrices_of, most_square
from relaxjax.gradients._power_sgd import power_sgd
from relaxjax.tasks import Task, chars, train_step_of

TARGET = 1.10
_RATE = 1e-3


def low_rank(
    *,
    rank: int = 4,
    rows: int = 8,
    width: int = 256,
    layers: int = 4,
    rounds: int = 20,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Times a step with and without the approximation.

    Args:
      rank: of the approximation.
      rows: of the worker's batch, 64 characters each.
      width: of the model.
      layers: of the model.
      rounds: interleaved steps of each.
      out: folder for the JSON.

    Returns:
      What was measured, as saved.
    """
    task = chars(0, width=width, layers=layers)
    optimizers = {
        "adam": optax.adam(_RATE),
        "adam after PowerSGD": optax.chain(_alone(rank), optax.adam(_RATE)),
    }
    programs = {k: _Program(task, tx, rows) for k, tx in optimizers.items()}
    seconds = interleaved({k: p.run for k, p in programs.items()}, rounds)
    plain, low = optimizers
    found = ratio(seconds[low], seconds[plain])
    size = sum(x.size for x in jax.tree.leaves(task.params))
    result = {
        "conditions": conditions(rank=rank, rows=rows, parameters=size, rounds=rounds),
        "seconds": seconds,
        "memory": {k: p.memory for k, p in programs.items()},
        "ratio": found._asdict(),
        "target": TARGET,
    }
    print(result["conditions"])
    columns = ("program", "lower", "median", "upper", "state MiB", "temporary MiB")
    table = [
        (k, *(1e3 * q for q in quartiles(seconds[k])), *(m / 2**20 for m in p.memory))
        for k, p in programs.items()
    ]
    show("Milliseconds of a step, and memory", columns, table)
    print(f"{found} times Adam's step, {found.pairs} pairs; target <= {TARGET}")
    save(result, out, "low_rank")
    return result


class _Program:
    """A training that goes on step by step."""

    def __init__(self, task: Task, tx: optax.GradientTransformation, rows: int):
        step = jax.jit(train_step_of(task, tx), donate_argnums=(0, 1))
        params = jax.tree.map(lambda x: x.copy(), task.params)
        self._state = [params, tx.init(params)]
        self._batch = next(task.batches(0, rows))
        self._step = step.lower(*self._state, self._batch).compile()
        state = sum(x.nbytes for x in jax.tree.leaves(self._state))
        analysis: Any = self._step.memory_analysis()
        self.memory = state, analysis.temp_size_in_bytes

    def run(self) -> Any:
        *self._state, metrics = self._step(*self._state, self._batch)
        return self._state, metrics


def _alone(rank: int) -> optax.GradientTransformation:
    """PowerSGD of a worker that takes its own P and Q for the mean."""
    matrices = functools.partial(
        matrices_of, rank=rank, min_compression=1.0, as_matrices=most_square
    )

    def own(arrays: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        return arrays, []

    def update(updates, state, params=None) -> Any:
        del params
        trees = updates, state.residual, state.right
        updates, residual, right = approximate(
            trees, matrices=matrices, mean=own, iterations=1
        )
        return updates, state._replace(residual=residual, right=right)

    init = power_sgd("data", rank=rank).init
    return optax.GradientTransformation(init, update)
