"""Whole compressed methods beside their uncompressed parents, equal steps.

Each trains a task's model on 8 emulated workers with the batches, the steps and the
schedule of its parent: AdamW, momentum SGD or LAMB, after a plain all-reduce. Its peak
rate is the parent's own or, where both are searched, each has its best. Bytes are those
of the whole run, with its phases. A difference is how much worse the held-out metric is
than the parent's with the same seed, in 95 % intervals of pairs (Student's t).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import optax

from benchmarks.report import Result, Run, Runs, Table, Tasks, TaskSteps, benchmark
from benchmarks.training.loop import held_out, sign, worse, worse_cells
from relaxjax import Emulation, all_reduce, emulate, wire_bytes
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.tasks import OPTIMIZERS, TASKS, Task, schedule

STEPS = {"digits": 600, "chars": 600}
TARGET = 0.01
_EIGHT = emulate(8)
_HOSTS = emulate({"host": 2, "device": 4})
Row = dict[str, Any]
Make = Callable[[int], Task]
"""From a seed to a task."""


@dataclass(frozen=True)
class Entry:
    """A row: a relaxation's name, its options, its optimizer, and where it runs."""

    name: str
    options: Mapping[str, float] = field(default_factory=dict)
    mesh: Emulation = _EIGHT
    optimizer: str | None = None  # None: the relaxation's own parent
    learning_rate: float | None = None  # peak; None: the task's, for this optimizer

    @property
    def parent(self) -> str:
        """What it is compared with, after a plain all-reduce."""
        return self.optimizer or parse(self.name).row.parent

    @property
    def label(self) -> str:
        """The name of the row in tables."""
        parts = [f"{k}={v:g}" for k, v in self.options.items()]
        if self.mesh.size != _EIGHT.size:
            parts.append(f"{self.mesh.size} workers")
        if self.learning_rate is not None:
            parts.append(f"rate {self.learning_rate:g}")
        return f"{self.name} ({', '.join(parts)})" if parts else self.name


ENTRIES = (
    Entry("power_sgd", {"rank": 8}, optimizer="momentum"),
    Entry("power_sgd", {"rank": 16}),
    Entry("deep_gradient_compression", {"density": 0.01, "warmup_steps": 30}),
    Entry("one_bit_adam"),
    Entry("one_bit_adam+quantize4+ef14"),
    Entry(
        "zero_one_adam+quantize4+ef14", {"local_doubling": 100, "most_local_steps": 4}
    ),
    Entry("one_bit_lamb"),
    Entry("all_reduce+quantize4+loco"),
    Entry("all_reduce+quantize4+ef14@two_level", mesh=_HOSTS),
)


@benchmark("methods")
def methods(
    run: Run, task: Tasks = None, steps: TaskSteps = None, seeds: Runs = 3
) -> Result:
    """Whole compressed methods beside their uncompressed parents, equal steps."""
    tasks = {name: TASKS[name] for name in task or TASKS}
    return compare(run, tasks, ENTRIES, steps=steps, seeds=seeds)


def compare(
    run: Run,
    tasks: Mapping[str, Make],
    entries: Sequence[Entry],
    *,
    steps: int | None,
    seeds: int,
    rates: Mapping[str, Sequence[float]] = MappingProxyType({}),
    target: float = TARGET,
    judge: Callable[[list[Row]], Sequence[str]] = lambda rows: (),
) -> Result:
    """Trains with every method and with every parent.

    Args:
      run: the benchmark.
      tasks: tasks by name.
      entries: the methods.
      steps: number of steps; None: each task's own of `STEPS`.
      seeds: number of runs of each.
      rates: peaks at which a parent is run, by its name; methods are compared with the
        best run. A parent without any has the task's own.
      target: the most that a method may be worse, relative.
      judge: verdicts on the rows.

    Returns:
      What was measured, as saved.
    """
    start = time.perf_counter()
    rows: list[Row] = []
    for task, make in tasks.items():
        rows += _compare(make, entries, rates, steps or STEPS[task], range(seeds))
    conditions = run.conditions(
        workers=8,
        steps={task: steps or STEPS[task] for task in tasks},
        rates=dict(rates),
        seconds=round(time.perf_counter() - start),
    )
    columns = ("task", "method", "parent", "bytes", "metric", "worse", "95 %")
    cells = [_cells(row, target) for row in rows]
    title = "Methods and their parents"
    return run.finish(
        {"conditions": conditions, "target": target, "rows": rows},
        tables=[Table(title, (*columns, f"{target:.0%}"), cells)],
        notes=judge(rows),
    )


def _compare(
    make: Make,
    entries: Sequence[Entry],
    rates: Mapping[str, Sequence[float]],
    steps: int,
    seeds: Sequence[int],
) -> list[Row]:
    """Rows of each parent that is needed, and one for each method."""
    rows, best = [], {}
    for parent in dict.fromkeys(entry.parent for entry in entries):
        peaks = rates.get(parent) or [None]
        plain = [Entry("all_reduce", optimizer=parent, learning_rate=p) for p in peaks]
        runs = [trained(make, entry, steps, seeds) for entry in plain]
        best[parent] = min(runs, key=_badness)
        rows += runs
    rows += [trained(make, entry, steps, seeds) for entry in entries]
    for row in rows:
        base = best[row["parent"]]["metrics"]
        row["worse"] = worse(row["metrics"], base, row["metric_name"])
    return rows


def _badness(row: Row) -> float:
    """The less the better; a run that diverged is the worst."""
    badness = sign(row["metric_name"]) * np.mean(row["metrics"])
    return float(np.nan_to_num(badness, nan=np.inf))


def trained(make: Make, entry: Entry, steps: int, seeds: Sequence[int]) -> Row:
    """Trains once with each seed of the task, its params and its batches."""
    tasks = [make(seed) for seed in seeds]
    tx = _transformation(entry, tasks[0], steps)
    ring = all_reduce("data"), tasks[0].params, emulate(entry.mesh.size)
    row = {
        "task": tasks[0].name,
        "name": entry.name,
        "method": entry.label,
        "parent": entry.parent,
        "metric_name": tasks[0].metric_name,
        "share": wire_bytes(tx, tasks[0].params, entry.mesh, steps=steps)
        / (steps * wire_bytes(*ring)),
        "metrics": [
            held_out(task, tx, entry.mesh, steps=steps, seed=seed)
            for task, seed in zip(tasks, seeds, strict=True)
        ],
    }
    print(row, flush=True)
    return row


def _transformation(
    entry: Entry, task: Task, steps: int
) -> optax.GradientTransformation:
    """The method under the schedule of its parent."""
    optimizer = OPTIMIZERS[entry.parent]
    peak = entry.learning_rate or optimizer.rate * task.learning_rate
    rate = schedule(peak, steps)
    training = Training(optimizer.make(rate), rate, steps, entry.mesh.size)
    return parse(entry.name).build(entry.mesh.axis_names, training, **entry.options)


def _cells(row: Row, target: float) -> tuple[object, ...]:
    gap, ends = worse_cells(row)
    met = "met" if row["worse"][0] <= target else "missed"
    is_parent = row["name"] == "all_reduce"
    return (
        row["task"],
        row["method"],
        row["parent"],
        f"1/{1 / row['share']:.1f}",
        float(np.mean(row["metrics"])),
        "" if is_parent else gap,
        ends,
        "" if is_parent else met,
    )
