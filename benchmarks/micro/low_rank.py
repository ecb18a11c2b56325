"""What PowerSGD computes in a step, and keeps, beside plain Adam.

One worker trains a character model of 3.2 million parameters. The second program also
makes the low-rank approximation of its gradient, with all that PowerSGD does but the
two messages. State is what lives from step to step, temporary memory what XLA says.
"""

import functools
from typing import Annotated, Any

import jax
import optax
import typer

from benchmarks.measure import interleaved, milliseconds, ratio, stepper
from benchmarks.report import Result, Rounds, Run, Table, benchmark
from relaxjax import power_sgd
from relaxjax.gradients import matrices_of, most_square
from relaxjax.gradients.low_rank._low_rank import approximate
from relaxjax.tasks import Task, chars, train_step_of

TARGET = 1.10
_RATE = 1e-3


@benchmark("low_rank")
def low_rank(
    run: Run,
    rank: Annotated[int, typer.Option(min=1, help="Rank of the approximation.")] = 4,
    rows: Annotated[
        int, typer.Option(min=1, help="Rows of the batch, 64 characters each.")
    ] = 8,
    width: Annotated[int, typer.Option(min=8, help="Width of the model.")] = 256,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = 4,
    rounds: Rounds = 20,
) -> Result:
    """What PowerSGD computes in a step, beside Adam's, without communication."""
    task = chars(0, width=width, layers=layers)
    optimizers = {
        "adam": optax.adam(_RATE),
        "adam after PowerSGD": optax.chain(_alone(rank), optax.adam(_RATE)),
    }
    programs = {k: _program(task, tx, rows) for k, tx in optimizers.items()}
    seconds = interleaved({k: step for k, (step, _) in programs.items()}, rounds)
    memory = {k: nbytes for k, (_, nbytes) in programs.items()}
    plain, low = optimizers
    slower = ratio(seconds[low], seconds[plain])
    size = sum(x.size for x in jax.tree.leaves(task.params))
    columns = ("program", "lower", "median", "upper", "state MiB", "temporary MiB")
    cells = [
        (k, *milliseconds(s), *(nbytes / 2**20 for nbytes in memory[k]))
        for k, s in seconds.items()
    ]
    result = {"conditions": run.conditions(parameters=size), "seconds": seconds}
    return run.finish(
        result | {"memory": memory, "ratio": slower._asdict(), "target": TARGET},
        tables=[Table("Milliseconds of a step, and memory", columns, cells)],
        notes=[f"{slower} times Adam's step, {rounds} pairs; target <= {TARGET}"],
    )


def _program(
    task: Task, tx: optax.GradientTransformation, rows: int
) -> tuple[Any, tuple[int, int]]:
    """Steps of a training, and bytes of its state and of temporary memory."""
    params = jax.tree.map(lambda x: x.copy(), task.params)
    state, batch = [params, tx.init(params)], next(task.batches(0, rows))
    step = jax.jit(train_step_of(task, tx), donate_argnums=(0, 1))
    compiled = step.lower(*state, batch).compile()
    analysis: Any = compiled.memory_analysis()
    nbytes = sum(x.nbytes for x in jax.tree.leaves(state)), analysis.temp_size_in_bytes
    return stepper(compiled, state, batch), nbytes


def _alone(rank: int) -> optax.GradientTransformation:
    """PowerSGD of a worker that takes its own P and Q for the mean."""
    matrices = functools.partial(
        matrices_of, rank=rank, min_compression=1.0, as_matrices=most_square
    )

    def as_mean(arrays: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        return arrays, []

    def update(updates, state, params=None) -> Any:
        del params
        trees = updates, state.residual, state.right
        layouts = (frozenset(),) * len(jax.tree.leaves(updates))
        updates, residual, right = approximate(
            trees,
            matrices=matrices,
            mean=lambda _: as_mean,
            iterations=1,
            layouts=layouts,
        )
        return updates, state._replace(residual=residual, right=right)

    init = power_sgd("data", rank=rank).init
    return optax.GradientTransformation(init, update)
