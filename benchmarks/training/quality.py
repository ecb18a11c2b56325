"""Held-out quality at equal bytes: compressors with feedback and without.

Every method trains a task's model on 8 emulated workers, with the same steps, batches
and optimizer as the uncompressed all-reduce that it is compared with. A budget is a
share of the bytes of the float32 ring all-reduce, 2 (n - 1) ceil(d / n) 4 per step.
Sparse methods keep as many elements as fit in it, as `wire_bytes` counts them; dense
codes cost what they cost; those that cost more meet no target.

Before the optimizer, gradients are compressed. After it, every worker's own updates
are: its moments are then its own, and feedback is in units of the update. After a
number of local steps, the change of its model since the last exchange is, and bytes
are those of such a round, divided by its steps; the last step of a run ends a round.

A difference is how much worse the held-out metric is, relative to the uncompressed run
with the same optimizer and seed. Methods on the Pareto front of bytes and metric, and
the least difference of each budget, run with all seeds, the others with the first; the
mean of pairs gets a 95 % interval (Student's t; the first seed, by which they were
chosen, is in it).
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.report import (
    Plot,
    Result,
    Run,
    Runs,
    Table,
    Tasks,
    TaskSteps,
    benchmark,
)
from benchmarks.training.loop import sign, worse, worse_cells
from benchmarks.training.quality_methods import (
    BASELINES,
    MESH,
    TARGETS,
    Method,
    methods,
)
from relaxjax.tasks import TASKS, Task

STEPS = {"digits": 600, "chars": 600}
_WORST_DRAWN = 0.5  # a larger difference would hide all others in the plot
Row = dict[str, Any]


@benchmark("quality")
def quality(
    run: Run, task: Tasks = None, steps: TaskSteps = None, seeds: Runs = 3
) -> Result:
    """Held-out quality of compressors at 1/32, 1/100 and 1/400 of a ring's bytes.

    The baselines and the best methods run with all seeds, the others with one.
    """
    start = time.perf_counter()
    by_task = {n: _compare(n, steps or STEPS[n], seeds) for n in task or STEPS}
    rows = [row for task_rows in by_task.values() for row in task_rows]
    conditions = run.conditions(
        workers=MESH.size,
        steps={name: steps or STEPS[name] for name in by_task},
        batch_size={name: TASKS[name](0).batch_size for name in by_task},
        seconds=round(time.perf_counter() - start),
    )
    targets = {str(budget): share for budget, share in TARGETS.items()}
    title, best = "Quality at equal bytes", "ring's bytes / bytes"
    return run.finish(
        {"conditions": conditions, "targets": targets, "rows": rows},
        tables=[
            Table.of(
                title,
                rows,
                "task",
                ("budget", lambda row: f"1/{row['budget']}"),
                "method",
                ("bytes", _share),
                ("metric", lambda row: float(np.mean(row["metrics"]))),
                ("worse", lambda row: worse_cells(row)[0]),
                ("95 %", lambda row: worse_cells(row)[1]),
                ("seeds", lambda row: len(row["metrics"])),
            )
        ],
        notes=[
            line
            for name, task_rows in by_task.items()
            for line in _verdicts(name, task_rows)
        ],
        plots=[
            Plot(
                f"{title}: {name}",
                (best, task_rows[0]["metric"]),
                _lines(task_rows),
                f"-{name}",
            )
            for name, task_rows in by_task.items()
        ],
    )


def _compare(name: str, steps: int, seeds: int) -> list[Row]:
    """All rows of one task, the uncompressed ones first."""
    task = TASKS[name](0)
    compared = [(b, m) for b in TARGETS for m in methods(b, name)]
    used = [m for m in BASELINES if m.optimizer in {x.optimizer for _, x in compared}]
    baselines = [_row(task, method, 1, math.inf) for method in used]
    for method, row in zip(used, baselines, strict=True):
        _train(row, method, steps, range(seeds))
    ring = baselines[0]["bytes"]
    rows = [_row(task, method, b, ring / b) for b, method in compared]
    against = {row["optimizer"]: row["metrics"] for row in baselines}

    def train(place: int, seeds: Sequence[int]) -> None:
        row = rows[place]
        _train(row, compared[place][1], steps, seeds)
        row["share"] = row["bytes"] / ring
        base = against[row["optimizer"]]
        row["worse"] = worse(row["metrics"], base, row["metric"])

    for place in range(len(rows)):
        train(place, [0])
    while few := [i for i in _best(rows) if len(rows[i]["metrics"]) < seeds]:
        train(few[0], range(1, seeds))
    return baselines + rows


def _row(task: Task, method: Method, budget: int, most: float) -> Row:
    """A method at a budget, before it has run."""
    density = method.density(task, most)
    sent = method.bytes(task, density)
    return {
        "task": task.name,
        "metric": task.metric_name,
        "budget": budget,
        "method": method.label,
        "optimizer": method.optimizer,
        "density": density,
        "bytes": sent,
        "fits": sent <= most,
        "share": 1.0,
        "metrics": [],
        "worse": [0.0, None, None],
    }


def _train(row: Row, method: Method, steps: int, seeds: Sequence[int]) -> None:
    """Appends the metric of a run with each seed to the row."""
    for seed in seeds:
        task = TASKS[row["task"]](seed)
        metric = method.held_out(task, steps, row["density"], seed)
        row["metrics"].append(metric)
        print(row["task"], row["budget"], row["method"], row["metrics"], flush=True)


def _best(rows: Sequence[Row]) -> list[int]:
    """Indices of the Pareto front of means, and of each budget's least difference."""
    less = sign(rows[0]["metric"])
    points = [(row["bytes"], less * np.mean(row["metrics"])) for row in rows]

    def dominated(b: float, y: float) -> bool:
        better = (m <= y and s <= b and (s, m) != (b, y) for s, m in points)
        return not math.isfinite(y) or any(better)

    front = {i for i, point in enumerate(points) if not dominated(*point)}
    return sorted(front | {i for budget in TARGETS for i in _closest(rows, budget)})


def _closest(rows: Sequence[Row], budget: int) -> list[int]:
    """Index of the smallest mean difference within a budget's bytes, if any fits."""
    fit = [i for i, row in enumerate(rows) if row["budget"] == budget and row["fits"]]
    gaps = {i: np.nan_to_num(rows[i]["worse"][0], nan=math.inf) for i in fit}
    return sorted(gaps, key=lambda i: gaps[i])[:1]


def _verdicts(task: str, rows: Sequence[Row]) -> list[str]:
    """Whether the best method of each budget meets its target."""
    compared, verdicts = [row for row in rows if row["budget"] > 1], []
    for budget, target in TARGETS.items():
        for best in (compared[i] for i in _closest(compared, budget)):
            gap, by = best["worse"][0], best["method"]
            met = "met" if gap <= target else "missed"
            verdicts.append(
                f"{task} 1/{budget}: {target:.0%} {met}: {gap:+.2%} by {by}"
            )
    return verdicts


def _share(row: Row) -> str:
    return f"1/{1 / row['share']:.1f}" + ("" if row["fits"] else ", above")


def _lines(rows: Sequence[Row]) -> dict[str, tuple[list[float], list[float]]]:
    """Each method's metric over its budgets."""
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        if row["worse"][0] <= _WORST_DRAWN:
            x, y = lines.setdefault(row["method"], ([], []))
            x.append(1 / row["share"])
            y.append(float(np.mean(row["metrics"])))
    return lines
