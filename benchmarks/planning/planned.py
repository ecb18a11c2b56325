"""The planner on the devices at hand: measured links, its choice, and trial runs.

Links, codecs and a step without communication are measured; every relaxation is ranked;
the first few that may be chosen, and the plain all-reduce, are then run; beside them
the plain program without relaxjax, `jax.jit` over a batch with a `NamedSharding`, whose
all-reduce the compiler inserts. Where plain is best, the planner should say so before
anything is run.
"""

import math
import time
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import jax
import optax
import typer
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.report import OneTask, Result, Run, Table, Workers, benchmark
from relaxjax import data_parallel, init
from relaxjax.cli.common._errors import user_errors
from relaxjax.cli.common._known import TaskName
from relaxjax.plan import (
    Model,
    measure,
    rank,
    step_seconds,
    transformation,
    verify,
)
from relaxjax.plan._ranking import BY_COMPILER
from relaxjax.tasks import OPTIMIZERS, TASKS, Task, train_step_of


@benchmark("planned", devices="workers")
def planned(
    run: Run,
    workers: Workers = 8,
    task: OneTask = TaskName.DIGITS,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in all.")] = 1024,
    quality: Annotated[
        str, typer.Option(help="Worst class of quality that may be chosen.")
    ] = "equal",
    top: Annotated[
        int, typer.Option(min=1, help="Relaxations that are run, best first.")
    ] = 5,
) -> Result:
    """The planner on the devices at hand: its choice, and trial runs of the best."""
    problem, mesh = TASKS[task](0), jax.make_mesh((workers,), ("data",))
    optimizer = OPTIMIZERS["adamw"].make(problem.learning_rate)
    seconds = _trials(problem, mesh, batch_size)
    start = time.perf_counter()
    measured = measure(mesh)
    compute = seconds(optax.with_extra_args_support(optimizer), alone=True)
    model = Model(params=problem.params, compute=compute)
    with user_errors():
        ranked = rank(model, measured.network, quality=quality)
    planning = time.perf_counter() - start
    sure = verify(
        ranked,
        lambda row: seconds(transformation(row, "data", optimizer, workers)),
        top=top,
    )
    links = {
        name: (fit.link.latency, fit.link.bandwidth, fit.error)
        for name, fit in measured.fits.items()
    }
    ran = [row for row in sure.rows if row.measured is not None]
    times = {row.label: row.measured or math.inf for row in ran}
    times[BY_COMPILER] = _by_compiler(problem, mesh, batch_size, optimizer)
    fastest = min(times, key=times.__getitem__)
    cells: list[tuple[object, ...]] = [
        (
            row.label,
            1e3 * row.prediction.seconds,
            1e3 * times[row.label],
            row.quality.name,
        )
        for row in ran
    ]
    cells.append((BY_COMPILER, "", 1e3 * times[BY_COMPILER], "exact"))
    columns = ("relaxation", "predicted ms", "measured ms", "quality")
    return run.finish(
        {
            "conditions": run.conditions(),
            "seconds_of_planning": planning,
            "compute": compute,
            "links": links,
            "jit_seconds": times[BY_COMPILER],
            "before": ranked.told() | {"ranking": []},
            "after": sure.told() | {"ranking": [row.told() for row in ran]},
            "fastest": fastest,
        },
        tables=[Table(f"Ran, after a plan of {planning:.1f} s", columns, cells)],
        notes=[
            *(
                f"{name}: {1e6 * delay:.0f} us, {rate / 1e9:.2f} GB/s, fit {error:.0%}"
                for name, (delay, rate, error) in links.items()
            ),
            f"Before:   {ranked.verdict}",
            f"Measured: {sure.verdict}",
            f"Fastest:  {fastest}",
        ],
    )


def _trials(task: Task, mesh: Any, batch_size: int) -> Callable[..., float]:
    """Seconds of a step with a transformation; `alone`, it exchanges nothing."""
    batch = next(task.batches(0, batch_size))

    def seconds(tx: optax.GradientTransformation, *, alone: bool = False) -> float:
        state = init(tx, task.params, mesh, reduced_in_step=alone)
        step = data_parallel(train_step_of(task, tx), mesh)
        with warnings.catch_warnings():
            if alone:  # on purpose: the step is not to warn of it
                warnings.filterwarnings("ignore", "data_parallel: the step trains")
            return step_seconds(step, *state, batch, steps=5, rounds=7)

    return seconds


def _by_compiler(
    task: Task, mesh: Any, batch_size: int, tx: optax.GradientTransformation
) -> float:
    """Seconds of a step by `jax.jit` alone."""
    mesh = Mesh(mesh.devices, mesh.axis_names)  # of the compiler's choice throughout
    whole = NamedSharding(mesh, P())
    rows = jax.device_put(
        next(task.batches(0, batch_size)), NamedSharding(mesh, P("data"))
    )
    step = jax.jit(train_step_of(task, tx), out_shardings=whole)
    state = jax.device_put((task.params, tx.init(task.params)), whole)
    return step_seconds(step, *state, rows, steps=5, rounds=7)
