"""What one line of relaxjax costs against what one would write by hand (figure 1).

Three programs train the same transformer on the same batches:

    relaxjax   init, data_parallel, all_reduce(algorithm="psum")
    pmean      jax.shard_map with replicated state and a hand-written lax.pmean
    jit        jax.jit with NamedSharding: the compiler inserts the all-reduce
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import typer
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.measure import interleaved, milliseconds, ratio, stepper, timed
from benchmarks.report import (
    OneTask,
    Plot,
    Result,
    Rounds,
    Run,
    Table,
    Workers,
    benchmark,
)
from relaxjax import all_reduce, data_parallel, init
from relaxjax.cli.common._known import TaskName
from relaxjax.tasks import TASKS, Task, train_step_of

Program = tuple[Callable[..., Any], list[Any]]  # a step, and its state
LAYERS = 8
TARGETS = {"run": 1.02, "compile": 1.25}


@benchmark("overhead", devices="workers")
def overhead(
    run: Run,
    workers: Workers = 8,
    rounds: Rounds = 40,
    compiles: Annotated[int, typer.Option(min=3, help="Compilations of each.")] = 7,
    task: OneTask = TaskName.CHARS,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in all.")] = 256,
    width: Annotated[int, typer.Option(help="Of a perceptron, for the task.")] = 0,
) -> Result:
    """A full step against hand-written pmean and against jit with NamedSharding."""
    problem = _perceptron(width) if width else TASKS[task](0)
    mesh = Mesh(np.asarray(jax.devices()[:workers]), ("data",))
    rows = next(problem.batches(0, batch_size))
    batch = jax.device_put(rows, NamedSharding(mesh, P("data")))
    compile_seconds = _compile_seconds(problem, mesh, batch, compiles)
    runs = {k: stepper(*make(problem, mesh), batch) for k, make in MAKERS.items()}
    times = {"run": interleaved(runs, rounds), "compile": compile_seconds}
    notes, verdicts = [], {}
    for kind, seconds in times.items():
        baseline = min(("pmean", "jit"), key=lambda name: np.median(seconds[name]))
        slower, target = ratio(seconds["relaxjax"], seconds[baseline]), TARGETS[kind]
        verdict = {"baseline": baseline, "ratio": slower._asdict(), "target": target}
        verdicts[kind] = verdict
        pairs = f"{slower.pairs} pairs; target <= {target}"
        notes.append(f"{kind}: {slower} times {baseline}, {pairs}")
    columns = ("kind", "program", "lower", "median", "upper")
    cells = [
        (kind, name, *milliseconds(times_of))
        for kind, seconds in times.items()
        for name, times_of in seconds.items()
    ]
    lines = {
        name: (range(rounds), [1e3 * x for x in times_of])
        for name, times_of in times["run"].items()
    }
    return run.finish(
        {
            "conditions": run.conditions(),
            **{f"{kind}_seconds": seconds for kind, seconds in times.items()},
            **verdicts,
        },
        tables=[Table("Milliseconds", columns, cells)],
        notes=notes,
        plots=[Plot("Full step", ("round", "milliseconds"), lines)],
    )


def _perceptron(width: int) -> Task:
    """Eight square layers: next to a transformer's, a step of large params."""
    rng = np.random.default_rng(0)
    shape = LAYERS, width, width
    layers = rng.normal(size=shape).astype(np.float32) / width**0.5
    params = {str(i): {"w": w, "b": np.zeros(width, "f")} for i, w in enumerate(layers)}

    def loss(params: Any, x: jax.Array) -> jax.Array:
        y = x
        for layer in params.values():
            y = jnp.tanh(y @ layer["w"] + layer["b"])
        return jnp.mean((y - x) ** 2)

    def batches(seed: int, rows: int) -> Iterator[Any]:
        drawn = np.random.default_rng(seed)
        while True:
            yield drawn.normal(size=(rows, width)).astype(np.float32)

    return replace(TASKS["digits"](0), params=params, loss=loss, batches=batches)


def _relaxjax(task: Task, mesh: Mesh) -> Program:
    tx = optax.chain(all_reduce("data", algorithm="psum"), optax.adamw(1e-3))
    state = list(init(tx, task.params, mesh))
    return data_parallel(train_step_of(task, tx), mesh, donate=True), state


def _pmean(task: Task, mesh: Mesh) -> Program:
    tx = optax.adamw(1e-3)

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(task.loss)(params, batch)
        loss, grads = lax.pmean((loss, grads), "data")
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    mapped = jax.shard_map(
        train_step,
        mesh=mesh,
        in_specs=(P(), P(), P("data")),
        out_specs=P(),
        check_vma=False,
    )
    return jax.jit(mapped, donate_argnums=(0, 1)), _replicated(tx, task, mesh)


def _jit(task: Task, mesh: Mesh) -> Program:
    tx = optax.adamw(1e-3)
    whole = NamedSharding(mesh, P())
    step = jax.jit(train_step_of(task, tx), donate_argnums=(0, 1), out_shardings=whole)
    return step, _replicated(tx, task, mesh)


def _replicated(tx: Any, task: Task, mesh: Mesh) -> list[Any]:
    params = jax.tree.map(np.array, task.params)  # a copy: the step donates it
    return list(jax.device_put((params, tx.init(params)), NamedSharding(mesh, P())))


MAKERS = {"relaxjax": _relaxjax, "pmean": _pmean, "jit": _jit}


def _compile_seconds(
    task: Task, mesh: Mesh, batch: Any, times: int
) -> dict[str, list[float]]:
    """Seconds of a fresh step's first call, less those of its second."""
    seconds: dict[str, list[float]] = {name: [] for name in MAKERS}
    for _ in range(times):
        for name, make in MAKERS.items():
            jax.clear_caches()
            step = stepper(*make(task, mesh), batch)
            first, second = (timed(step) for _ in range(2))
            seconds[name].append(first - second)
    return seconds
