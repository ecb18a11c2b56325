"""The planner on the devices at hand: measured links, its choice, and trial runs.

Links, codecs and a step without communication are measured; every relaxation is ranked;
the first few that may be chosen, and the plain all-reduce, are then run. Where plain is
best, the planner should say so before anything is run.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import optax

from relaxjax._data_parallel import data_parallel
from relaxjax._init import init
from relaxjax.bench._report import conditions, save, show
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
from relaxjax.tasks import OPTIMIZERS, TASKS, Task, train_step_of


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
        "before": ranked.told() | {"ranking": []},
        "after": sure.told() | {"ranking": [row.told() for row in _run(sure)]},
    }
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
        ],
    )
    print("Before: ", ranked.verdict)
    print("Measured:", sure.verdict)
