"""What it costs to emulate workers on one device (figure 4).

The perceptron of the digits task, a synchronous step with n emulated workers against
plain JAX with the same total batch. Each emulated worker holds its own model, so the
memory of params and optimizer state is n times one worker's, and so is the work of the
optimizer; forward and backward passes do the same work in smaller pieces.
"""

from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import typer

from benchmarks.measure import interleaved, milliseconds, ratio, stepper, text_of
from benchmarks.report import Plot, Result, Rounds, Run, Table, benchmark
from relaxjax import all_reduce, data_parallel, emulate, init
from relaxjax.tasks import TASKS, Task, train_step_of

WORKERS = (16, 64, 256, 1024)
OPTIMIZERS = {"sgd": optax.sgd(0.1), "adam": optax.adam(1e-3)}


@benchmark("emulation")
def emulation(
    run: Run,
    rounds: Rounds = 10,
    batch_size: Annotated[
        int, typer.Option(min=1024, help="Rows in all, drawn with replacement.")
    ] = 262144,
) -> Result:
    """16 to 1024 workers emulated on one device against one worker."""
    task = TASKS["digits"](0)
    batch = jax.tree.map(jnp.asarray, next(task.batches(0, batch_size)))
    result: Result = {
        "conditions": run.conditions(),
        "target": "<= 1.3 from 16 to 256 workers",
    }
    for name, optimizer in OPTIMIZERS.items():
        runs = {"1": _alone(task, optimizer, batch)}
        state_bytes = {}
        for n in WORKERS:
            runs[str(n)], state_bytes[str(n)] = _emulated(task, optimizer, batch, n)
        seconds = interleaved(runs, rounds)
        ratios = {k: ratio(s, seconds["1"])._asdict() for k, s in seconds.items()}
        result[name] = {"seconds": seconds, "ratio": ratios, "state_bytes": state_bytes}
    ratios = {name: result[name]["ratio"] for name in OPTIMIZERS}
    lines = {
        name: ([int(n) for n in by_workers], [r["median"] for r in by_workers.values()])
        for name, by_workers in ratios.items()
    }
    return run.finish(
        result,
        tables=[_table(name, result[name]) for name in OPTIMIZERS],
        notes=[f"target: {result['target']}"],
        plots=[Plot("Emulated workers", ("workers", "times one worker's step"), lines)],
    )


def _table(name: str, measured: dict[str, Any]) -> Table:
    columns = ("workers", "lower ms", "median ms", "upper ms", "times one", "MiB")
    rows = [
        (
            n,
            *milliseconds(seconds),
            text_of(measured["ratio"][n]),
            measured["state_bytes"].get(n, 0) / 2**20,
        )
        for n, seconds in measured["seconds"].items()
    ]
    return Table(f"Emulated steps, {name} (MiB: params and state)", columns, rows)


def _alone(task: Task, optimizer: Any, batch: Any) -> Callable[[], Any]:
    params = jax.tree.map(lambda x: jnp.asarray(np.array(x)), task.params)
    step = jax.jit(train_step_of(task, optimizer), donate_argnums=(0, 1))
    return stepper(step, [params, optimizer.init(params)], batch)


def _emulated(
    task: Task, optimizer: Any, batch: Any, n: int
) -> tuple[Callable[[], Any], int]:
    """A step of n workers, and the bytes of their state."""
    tx = optax.chain(all_reduce("data"), optimizer)
    state = list(init(tx, task.params, emulate(n)))
    step = data_parallel(train_step_of(task, tx), emulate(n), donate=True)
    nbytes = sum(x.nbytes for x in jax.tree.leaves(state))
    return stepper(step, state, batch), nbytes
