"""The planner on the devices at hand: measured links, its choice, and trial runs.

Links, codecs and a step without communication are measured; every relaxation is ranked;
the first few that may be chosen, and the plain all-reduce, are then run; beside them
the plain program without relaxjax, `jax.jit` over a batch with a `NamedSharding`, whose
all-reduce the compiler inserts. Where plain is best, the planner should say so before
anything is run.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.report import conditions, save, show
from relaxjax.plan import (
    Model,
    Ranking,
    Row,
    measure,
    rank,
    step_seconds,
    transformation,
    verify,
)
from relaxjax.plan._rank import BY_COMPILER
from relaxjax.tasks import OPTIMIZERS, TASKS, Task, train_step_of
from relaxjax.workers._data_parallel import data_parallel
from relaxjax.workers._init import init


def planned(
    *,
    task: str = "digits",
    workers: int = 8,
    batch_size: int = 1024,
    quality: str = "equal",
    top: int = 5,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Measures, ranks, and runs the best few.

    Args:
      task: of `relaxjax.tasks`.
      workers: devices.
      batch_size: rows in all.
      quality: the worst class that may be chosen.
      top: how many are run.
      out: folder of the JSON.

    Returns:
      What was found, as saved.
    """
    own, mesh = TASKS[task](0), jax.make_mesh((workers,), ("data",))
    optimizer = OPTIMIZERS["adamw"].make(own.learning_rate)
    seconds = _trials(own, mesh, batch_size)
    start = time.perf_counter()
    found = measure(mesh)
    compute = seconds(optax.with_extra_args_support(optimizer))
    ranked = rank(
        Model(params=own.params, compute=compute), found.network, quality=quality
    )
    asked = time.perf_counter() - start
    sure = verify(
        ranked,
        lambda row: seconds(transformation(row, "data", optimizer, workers)),
        top=top,
    )
    result = {
        "conditions": conditions(task=task, workers=workers, batch_size=batch_size),
        "seconds_of_planning": asked,
        "compute": compute,
        "links": {
            name: (fit.link.latency, fit.link.bandwidth, fit.error)
            for name, fit in found.fits.items()
        },
        "jit_seconds": _by_compiler(own, mesh, batch_size, optimizer),
        "before": ranked.told() | {"ranking": []},
        "after": sure.told() | {"ranking": [row.told() for row in _run(sure)]},
    }
    times = {row.label: row.measured for row in _run(sure)}
    times[BY_COMPILER] = result["jit_seconds"]
    result["fastest"] = min(times, key=lambda label: times[label] or math.inf)
    _print(result, ranked, sure)
    save(result, out, "planned")
    return result


def _run(sure: Ranking) -> list[Row]:
    return [row for row in sure.rows if row.measured is not None]


def _trials(
    own: Task, mesh: Any, batch_size: int
) -> Callable[[optax.GradientTransformation], float]:
    """Seconds of a step with a transformation."""
    batch = next(own.batches(0, batch_size))

    def seconds(tx: optax.GradientTransformation) -> float:
        state = init(tx, own.params, mesh)
        step = data_parallel(train_step_of(own, tx), mesh)
        return step_seconds(step, *state, batch, steps=5, rounds=7)

    return seconds


def _by_compiler(
    own: Task, mesh: Any, batch_size: int, tx: optax.GradientTransformation
) -> float:
    """Seconds of a step by `jax.jit` alone."""
    mesh = Mesh(mesh.devices, mesh.axis_names)  # of the compiler's choice throughout
    whole = NamedSharding(mesh, P())
    rows = jax.device_put(
        next(own.batches(0, batch_size)), NamedSharding(mesh, P("data"))
    )
    step = jax.jit(train_step_of(own, tx), out_shardings=whole)
    state = jax.device_put((own.params, tx.init(own.params)), whole)
    return step_seconds(step, *state, rows, steps=5, rounds=7)


def _print(result: dict[str, Any], ranked: Ranking, sure: Ranking) -> None:
    print(result["conditions"])
    for name, (latency, bandwidth, error) in result["links"].items():
        rates = f"{1e6 * latency:.0f} us, {bandwidth / 1e9:.2f} GB/s"
        print(f"{name}: {rates}, fit {error:.0%}")
    show(
        f"Ran, after a plan of {result['seconds_of_planning']:.1f} s",
        ("relaxation", "predicted ms", "measured ms", "quality"),
        [
            (
                row.label,
                1e3 * row.prediction.seconds,
                1e3 * (row.measured or 0.0),
                row.quality.name,
            )
            for row in _run(sure)
        ]
        + [(BY_COMPILER, "", 1e3 * result["jit_seconds"], "exact")],
    )
    print("Before: ", ranked.verdict)
    print("Measured:", sure.verdict)
    print("Fastest: ", result["fastest"])
