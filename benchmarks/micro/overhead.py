"""What one line of relaxjax costs against what one would write by hand (figure 1).

Three programs train the same transformer on the same batches:

    relaxjax   init, data_parallel, all_reduce(algorithm="psum")
    pmean      jax.shard_map with replicated state and a hand-written lax.pmean
    jit        jax.jit with NamedSharding: the compiler inserts the all-reduce
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.measure import Ratio, interleaved, quartiles, ratio
from benchmarks.report import conditions, plot, save, show
from relaxjax.gradients._all_reduce import all_reduce
from relaxjax.tasks import TASKS, Task, train_step_of
from relaxjax.workers._data_parallel import data_parallel
from relaxjax.workers._init import init

Program = tuple[Callable[..., Any], list[Any]]  # a step, and its state


def overhead(
    *,
    task: str = "chars",
    workers: int = 8,
    batch_size: int = 256,
    rounds: int = 40,
    compiles: int = 5,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Times a full step and its compilation, against the faster of two baselines.

    Args:
      task: name of a task of `relaxjax train`.
      workers: number of devices.
      batch_size: rows in all.
      rounds: timed steps of each program, interleaved.
      compiles: times that each program is traced and compiled, interleaved.
      out: folder for JSON and plot.

    Returns:
      What was measured, as saved.
    """
    problem = TASKS[task](0)
    mesh = Mesh(np.asarray(jax.devices()[:workers]), ("data",))
    rows = next(problem.batches(0, batch_size))
    batch = jax.device_put(rows, NamedSharding(mesh, P("data")))
    makers = {"relaxjax": _relaxjax, "pmean": _pmean, "jit": _jit}
    compile_seconds = _compile_seconds(makers, problem, mesh, batch, compiles)
    runs = {k: _stepper(make(problem, mesh), batch) for k, make in makers.items()}
    seconds = interleaved(runs, rounds)
    result = {
        "conditions": conditions(
            task=task, workers=workers, batch_size=batch_size, rounds=rounds
        ),
        "run_seconds": seconds,
        "compile_seconds": compile_seconds,
    }
    for kind, times in (("run", seconds), ("compile", compile_seconds)):
        baseline = min(("pmean", "jit"), key=lambda name: np.median(times[name]))
        result[kind] = {
            "baseline": baseline,
            "ratio": ratio(times["relaxjax"], times[baseline])._asdict(),
            "target": {"run": 1.02, "compile": 1.25}[kind],
        }
    _report(result, out)
    return result


def _report(result: dict[str, Any], out: str) -> None:
    print(result["conditions"])
    rows = [
        (kind, name, *(1e3 * q for q in quartiles(seconds)))
        for kind in ("run", "compile")
        for name, seconds in result[f"{kind}_seconds"].items()
    ]
    show("Milliseconds", ("kind", "program", "lower", "median", "upper"), rows)
    for kind in ("run", "compile"):
        r, verdict = Ratio(**result[kind]["ratio"]), result[kind]
        print(
            f"{kind}: {r} times {verdict['baseline']}, {r.pairs} pairs; "
            f"target <= {verdict['target']}"
        )
    path = save(result, out, "overhead")
    lines = {
        name: (list(range(len(s))), [1e3 * x for x in s])
        for name, s in result["run_seconds"].items()
    }
    plot(path, "Full step", ("round", "milliseconds"), lines)


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


def _stepper(program: Program, batch: Any) -> Callable[[], Any]:
    step, state = program

    def run():
        *state[:], metrics = step(*state, batch)
        return state, metrics

    return run


def _compile_seconds(
    makers: dict[str, Any], task: Task, mesh: Mesh, batch: Any, times: int
) -> dict[str, list[float]]:
    """Seconds of a fresh step's first call, less those of its second."""
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(times):
        for name, make in makers.items():
            jax.clear_caches()
            run = _stepper(make(task, mesh), batch)
            first, second = (_timed(run) for _ in range(2))
            seconds[name].append(first - second)
    return seconds


def _timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start
