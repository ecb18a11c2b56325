"""How well models train by the relaxations that a plan ranks, on reference tasks.

Each trains with the steps, batches, optimizer and learning rate of the plain all-reduce
beside it (`benchmarks.training.methods`). How much worse the held-out metric of the
consensus is, relative, mean over seeds, is what `relaxjax.plan` calls its quality. What
a run measures is added to the file.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import Result, Run, Runs, Tasks, TaskSteps, benchmark
from benchmarks.training.loop import worse
from benchmarks.training.methods import STEPS, Entry, trained
from relaxjax.cli._errors import user_errors
from relaxjax.plan import Network, quality_of
from relaxjax.plan._candidates import candidates
from relaxjax.plan._quality import bare
from relaxjax.tasks import TASKS

WORKERS = 8
DIVERGED = 1e9
"""Worse than anything."""


def entries(labels: Sequence[str] | None = None) -> dict[str, Entry]:
    """What is trained, by the label that a plan has for it.

    Args:
      labels: labels without algorithm; None: all.

    Raises:
      ValueError: a label that no plan has.
    """
    known: dict[str, Entry] = {}
    for c in candidates(Network(workers=WORKERS)):
        if quality_of(c.label).name != "exact":
            entry = Entry(bare(c.relaxation), dict(c.options), optimizer="adamw")
            known.setdefault(bare(c.label), entry)
    if odd := [label for label in labels or () if label not in known]:
        raise ValueError(f"method must be one of {[*known]}, got {odd[0]!r}")
    return {k: v for k, v in known.items() if not labels or k in labels}


@benchmark("evidence")
def evidence(
    run: Run,
    task: Tasks = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Label in a plan, without algorithm; default: all."),
    ] = None,
    seeds: Runs = 1,
    steps: TaskSteps = None,
) -> Result:
    """How well models train by what a plan ranks; adds to evidence.json."""
    with user_errors():
        chosen = entries(method)
    path = run.out / "evidence.json"
    result: Result = {"conditions": [], "rows": {}}
    if path.exists():
        result = json.loads(path.read_text())
    for name in task or TASKS:
        length = steps or STEPS[name]
        base = trained(TASKS[name], Entry("all_reduce"), length, range(seeds))
        for label, entry in chosen.items():
            row = trained(TASKS[name], entry, length, range(seeds))
            result["rows"].setdefault(label, {})[name] = _compared(row, base)
            run.save(result)
        known = {"task": name, "steps": length, "workers": WORKERS}
        known |= {"labels": list(chosen), "all_reduce": base["metrics"]}
        result["conditions"].append(run.conditions(**known))
        run.save(result)
    return result


def _compared(row: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """How much worse than the base, on average; a run that diverged is of no use."""
    metrics = row["metrics"]
    mean = worse(metrics, base["metrics"], row["metric_name"])[0]
    return {
        "worse": mean if np.isfinite(metrics).all() else DIVERGED,
        "seeds": len(metrics),
    }
