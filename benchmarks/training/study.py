"""Runs the studies of `benchmarks.training.studies` by `relaxjax.compare`.

Each task and each optimizer is a study of its own, in a folder of its own with its
report; a study that was stopped goes on. A difference is how much worse the test metric
of the workers' consensus is than the all-reduce's of the same seed, relative: the mean
of the pairs, with a 95 % interval (Student's t) from two seeds on.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from scipy import stats

from benchmarks.report import Result, Run, Runs, Table, TaskSteps, benchmark
from benchmarks.training import studies
from relaxjax import all_reduce, compare, emulate, wire_bytes
from relaxjax.cli.common._errors import user_errors
from relaxjax.compare.kept._settings import StudyRuns
from relaxjax.tasks import OPTIMIZERS, Task

DIVERGED = 1e9
"""Worse than anything."""
Row = dict[str, Any]
Tasks = Annotated[
    list[str] | None, typer.Option(help="Of the study's tasks; default: all.")
]
Tune = Annotated[int, typer.Option(min=1, help="Learning rates of each; 1: the usual.")]


@benchmark("quality")
def quality(
    run: Run,
    task: Tasks = None,
    steps: TaskSteps = None,
    seeds: Runs = 3,
    tune: Tune = 3,
) -> Result:
    """Held-out quality of compressors at 1/32, 1/100 and 1/400 of a ring's bytes."""
    return _whole(run, studies.QUALITY, task, steps, seeds, tune)


@benchmark("screen")
def screen(
    run: Run, steps: TaskSteps = None, seeds: Runs = 1, tune: Tune = 3
) -> Result:
    """Methods of 2024 to 2026 beside older ones at 1/8 to 1/400 of a ring's bytes."""
    return _whole(run, studies.SCREENED, None, steps, seeds, tune)


@benchmark("frontier")
def frontier(
    run: Run, steps: TaskSteps = None, seeds: Runs = 3, tune: Tune = 3
) -> Result:
    """The new ones among them and the best of the older ones, on characters."""
    return _whole(run, studies.FRONTIER, None, steps, seeds, tune)


@benchmark("recent")
def recent(
    run: Run,
    task: Tasks = None,
    steps: TaskSteps = None,
    seeds: Runs = 3,
    tune: Tune = 3,
) -> Result:
    """Orthonormal momenta, rows by sketch, frequencies and turns: those that came last.

    On characters with `--task chars --steps 1000`, as `frontier` has it.
    """
    return _whole(run, studies.RECENT, task, steps, seeds, tune)


@benchmark("methods")
def methods(
    run: Run,
    task: Tasks = None,
    steps: TaskSteps = None,
    seeds: Runs = 3,
    tune: Tune = 3,
) -> Result:
    """Whole compressed methods beside their uncompressed parents, equal steps."""
    return _whole(run, studies.METHODS, task, steps, seeds, tune)


@benchmark("later")
def later(run: Run, steps: TaskSteps = None, seeds: Runs = 3, tune: Tune = 3) -> Result:
    """Local steps and outer optimizers beside all-reduce, on characters."""
    return _whole(run, studies.LATER, None, steps, seeds, tune)


@benchmark("evidence")
def evidence(
    run: Run,
    task: Tasks = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Label in a plan, without algorithm; default: all."),
    ] = None,
    steps: TaskSteps = None,
    seeds: Runs = 3,
    tune: Tune = 3,
) -> Result:
    """How well models train by what a plan ranks; adds to evidence.json."""
    with user_errors():
        table = studies.ranked(method)
    path = run.out / "evidence.json"
    known: Result = {"conditions": [], "rows": {}}
    if path.exists():
        known = json.loads(path.read_text())
    rows = _rows(run, table, task, steps, seeds, tune)
    for row in rows:
        worse = DIVERGED if row["diverged"] else row["worse"][0]
        cell = {"worse": worse, "seeds": len(row["metrics"])}
        if row["name"] != "all_reduce":
            known["rows"].setdefault(row["name"], {})[row["task"]] = cell
    labels = [row["name"] for row in rows]
    columns = "task", "relaxation", "metrics", "worse than the all-reduce"
    cells = [
        (
            row["task"],
            row["name"],
            ", ".join("nan" if x is None else f"{x:.4f}" for x in row["metrics"]),
            "diverged" if row["diverged"] else f"{row['worse'][0] + 0:+.2%}",
        )
        for row in rows
    ]
    base = {row["task"]: row["metrics"] for row in rows if row["name"] == "all_reduce"}
    shape = {"steps": steps or table.steps, "workers": studies.WORKERS, "tune": tune}
    known["conditions"].append(run.conditions(**shape, labels=labels, all_reduce=base))
    table_of = Table("Held-out metric of each seed", columns, cells)
    return run.finish(known, tables=[table_of], notes=[f"saved in {path}"])


def _whole(run: Run, table: studies.Table, *how: Any) -> Result:
    """Rows, tables and verdicts of a study."""
    rows = _rows(run, table, *how)
    targets = {str(budget): target for budget, target in table.budgets.items()}
    columns: tuple[Any, ...] = (
        *("task", "parent", ("method", "name"), "rate"),
        ("bytes", lambda row: f"1/{1 / row['share']:.1f}"),
        ("metric", lambda row: float(np.mean(np.array(row["metrics"], float)))),
        ("worse", lambda row: f"{row['worse'][0]:+.2%}"),
        ("95 %", lambda row: "[{:+.2%}, {:+.2%}]".format(*row["worse"][1:])),
    )
    conditions = run.conditions(workers=studies.WORKERS, steps=how[1] or table.steps)
    return run.finish(
        {"conditions": conditions, "targets": targets, "rows": rows},
        tables=[Table.of(run.name, rows, *columns)],
        notes=verdicts(rows, table.budgets),
    )


def _rows(
    run: Run,
    table: studies.Table,
    task: Sequence[str] | None,
    steps: int | None,
    seeds: int,
    tune: int,
) -> list[Row]:
    """Trains what has not been trained yet, and returns a row for each relaxation."""
    rows = []
    for name in task or table.tasks:
        for parent, names in table.relaxations.items():
            study = compare.Study(
                functools.partial(after, table.tasks[name], parent),
                ["all_reduce", *names],
                seeds=seeds,
                tune=tune,
                workers=studies.WORKERS,
                steps=steps or table.steps,
            )
            folder = run.out / f"{run.name}-{name}-{parent}"
            results = study.run(folder, progress=_say)
            results.write()
            params = study._task(0).params
            ring = wire_bytes(all_reduce("data"), params, emulate(studies.WORKERS))
            rows += _of(results, name, parent, ring)
    return rows


def after(make: Callable[[int], Task], parent: str, seed: int) -> Task:
    """A task, with another optimizer at its usual rate."""
    task, optimizer = make(seed), OPTIMIZERS[parent]
    rate = task.learning_rate * optimizer.rate
    return dataclasses.replace(task, optimizer=optimizer.make, learning_rate=rate)


def _say(done: int, of: int, what: str) -> None:
    print(f"{done} of {of}: {what}", flush=True)


def _of(results: compare.Results, task: str, parent: str, ring: float) -> list[Row]:
    """Rows of one study, the all-reduce's first."""
    study, records = results.study, results.records()
    rows: list[Row] = []
    for name in study["methods"]:
        runs = list(StudyRuns(study, records).reported(name).values())
        metrics = [record["test"] for record in runs]
        base = rows[0]["metrics"] if rows else metrics
        rows.append(
            {
                "task": task,
                "parent": parent,
                "name": name,
                "rate": runs[0]["learning_rate"],
                "share": runs[0]["bytes_per_step"] / ring,
                "metrics": metrics,
                "diverged": None in metrics,
                "worse": worse(metrics, base, study["task"]["better"]),
            }
        )
    return rows


def worse(
    metrics: Sequence[float | None], base: Sequence[float | None], better: str
) -> list[float]:
    """How much worse, relative: the mean of pairs and the ends of its 95 % interval.

    Args:
      metrics: metrics of runs; None of one that diverged.
      base: metrics of the runs they are compared with, seed by seed.
      better: "higher" or "lower".
    """
    sign = -1 if better == "higher" else 1
    pairs = sign * (np.array(metrics, float) / np.array(base, float) - 1)
    return interval(pairs)


def interval(pairs: np.ndarray) -> list[float]:
    """The mean and the ends of its 95 % interval (Student's t)."""
    if len(pairs) < 2:
        return [float(pairs[0]), float("nan"), float("nan")]
    width = stats.t.ppf(0.975, len(pairs) - 1) * stats.sem(pairs)
    return [float(x) for x in pairs.mean() + np.array([0, -width, width])]


def verdicts(rows: Sequence[Row], budgets: Mapping[int, float]) -> list[str]:
    """Whether the best row within each budget of bytes is within its target."""
    said = []
    for task in dict.fromkeys(row["task"] for row in rows):
        for budget, target in budgets.items():
            fit = [
                row
                for row in rows
                if row["task"] == task
                and row["name"] != "all_reduce"
                and row["share"] <= 1 / budget
                and not row["diverged"]
            ]
            if not fit:
                said.append(f"{task} 1/{budget}: nothing fits")
                continue
            best = min(fit, key=lambda row: row["worse"][0])
            gap = best["worse"][0]
            met = "met" if gap <= target else "missed"
            by = f"{best['name']} after {best['parent']}"
            said.append(f"{task} 1/{budget}: {target:.0%} {met}: {gap:+.2%} by {by}")
    return said
