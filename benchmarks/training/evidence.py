"""How well models train by the relaxations that a plan ranks, on reference tasks.

Each trains with the steps, batches, optimizer and learning rate of the plain all-reduce
beside it (`benchmarks.training.methods`); how much worse the held-out metric of the
consensus is, relative, mean over seeds, is what `relaxjax.plan` calls its quality. What
one run finds is added to what the file has.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import conditions
from benchmarks.training.loop import worse
from benchmarks.training.methods import STEPS, Entry, trained
from relaxjax.plan import Network
from relaxjax.plan._candidates import candidates
from relaxjax.plan._quality import bare, quality_of
from relaxjax.tasks import TASKS

WORKERS = 8
DIVERGED = 1e9
"""Worse than anything."""


def entries(labels: Sequence[str] | None = None) -> dict[str, Entry]:
    """What is trained, by the label that a plan has for it.

    Args:
      labels: which, without algorithm; None: all.

    Raises:
      ValueError: a label that no plan has.
    """
    found: dict[str, Entry] = {}
    for c in candidates(Network(workers=WORKERS)):
        if quality_of(c.label).name == "exact":
            continue
        entry = Entry(bare(c.relaxation), dict(c.options), optimizer="adamw")
        found.setdefault(bare(c.label), entry)
    if odd := [label for label in labels or () if label not in found]:
        raise ValueError(f"method must be one of {[*found]}, got {odd[0]!r}")
    return {k: v for k, v in found.items() if not labels or k in labels}


def evidence(
    *,
    tasks: Sequence[str] = tuple(TASKS),
    labels: Sequence[str] | None = None,
    seeds: int = 1,
    steps: int | None = None,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Trains, and writes what a plan reads.

    Args:
      tasks: names of tasks.
      labels: of relaxations; None: all that a plan ranks.
      seeds: runs of each.
      steps: of each run; None: each task's own.
      out: folder of `evidence.json`, which is added to.

    Returns:
      What the file has now.
    """
    chosen, path = entries(labels), Path(out) / "evidence.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"conditions": [], "rows": {}}
    if path.exists():
        result = json.loads(path.read_text())
    for task in tasks:
        length = steps or STEPS[task]
        base = trained(TASKS[task], Entry("all_reduce"), length, range(seeds))
        for label, entry in chosen.items():
            row = trained(TASKS[task], entry, length, range(seeds))
            result["rows"].setdefault(label, {})[task] = _compared(row, base)
            path.write_text(json.dumps(result, indent=1) + "\n")
        told = {"task": task, "seeds": seeds, "steps": length, "workers": WORKERS}
        told |= {"labels": list(chosen), "all_reduce": base["metrics"]}
        result["conditions"].append(conditions(**told))
        path.write_text(json.dumps(result, indent=1) + "\n")
    return result


def _compared(row: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """How much worse than the base, on average; a run that diverged is of no use."""
    metrics = row["metrics"]
    bad = not np.isfinite(metrics).all()
    mean = worse(metrics, base["metrics"], row["metric_name"])[0]
    return {"worse": DIVERGED if bad else mean, "seeds": len(metrics)}
