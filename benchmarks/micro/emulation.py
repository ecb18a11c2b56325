"""What it costs to emulate workers on one device (figure 4).

The perceptron of the digits task, a synchronous step with n emulated workers against
plain JAX with the same total batch. Each emulated worker holds its own model, so the
memory of params and optimizer state is n times one worker's, and so is the work of the
optimizer; forward and backward passes do the same work in smaller pieces.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.measure import interleaved, quartiles, ratio
from benchmarks.report import conditions, plot, save, show
from relaxjax.gradients._all_reduce import all_reduce
from relaxjax.tasks import TASKS, Task, train_step_of
from relaxjax.workers._data_parallel import data_parallel
from relaxjax.workers._init import init
from relaxjax.workers._mesh import emulate

WORKERS = (16, 64, 256, 1024)
OPTIMIZERS = {"sgd": optax.sgd(0.1), "adam": optax.adam(1e-3)}


def emulation(
    *, batch_size: int = 262144, rounds: int = 10, out: str = "runs/bench"
) -> dict[str, Any]:
    """Times emulated steps against one worker on the same total batch.

    Args:
      batch_size: rows in all, drawn with replacement.
      rounds: timed steps of each, interleaved.
      out: folder for JSON and plot.

    Returns:
      What was measured, as saved.
    """
    task = TASKS["digits"](0)
    batch = jax.tree.map(jnp.asarray, next(task.batches(0, batch_size)))
    result: dict[str, Any] = {
        "conditions": conditions(batch_size=batch_size, rounds=rounds),
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
    _report(result, out)
    return result


def _report(result: dict[str, Any], out: str) -> None:
    print(result["conditions"])
    for name in OPTIMIZERS:
        rows = []
        for n, seconds in result[name]["seconds"].items():
            r = result[name]["ratio"][n]
            interval = f"{r['median']:.2f} [{r['low']:.2f}, {r['high']:.2f}]"
            size = result[name]["state_bytes"].get(n, 0) / 2**20
            rows.append((n, *(1e3 * q for q in quartiles(seconds)), interval, size))
        columns = ("workers", "lower ms", "median ms", "upper ms", "times one", "MiB")
        show(f"Emulated steps, {name} (MiB: params and state)", columns, rows)
    print("target:", result["target"])
    lines = {}
    for name in OPTIMIZERS:
        ratios = result[name]["ratio"]
        lines[name] = ([int(n) for n in ratios], [r["median"] for r in ratios.values()])
    path = save(result, out, "emulation")
    plot(path, "Emulated workers", ("workers", "times one worker's step"), lines)


def _alone(task: Task, optimizer: Any, batch: Any) -> Callable[[], Any]:
    params = jax.tree.map(lambda x: jnp.asarray(np.array(x)), task.params)
    state = [params, optimizer.init(params)]
    step = jax.jit(train_step_of(task, optimizer), donate_argnums=(0, 1))

    def run():
        *state[:], metrics = step(*state, batch)
        return state, metrics

    return run


def _emulated(
    task: Task, optimizer: Any, batch: Any, n: int
) -> tuple[Callable[[], Any], int]:
    tx = optax.chain(all_reduce("data"), optimizer)
    state = list(init(tx, task.params, emulate(n)))
    step = data_parallel(train_step_of(task, tx), emulate(n), donate=True)

    def run():
        *state[:], metrics = step(*state, batch)
        return state, metrics

    return run, sum(x.nbytes for x in jax.tree.leaves(state))
