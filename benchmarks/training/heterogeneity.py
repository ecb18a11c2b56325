"""Workers whose data differ: what separates decentralized methods.

Digits are split by label over the workers (`heterogeneity_data`), in five folds, so
that every image is held out once. All methods take the same steps from the same starts
with the same batches. Each tries the same learning rates (with momentum a tenth of
them), and for each alpha the one of the least mean training loss counts; what is held
out has no say in it. A difference is in points of held-out accuracy to the all-reduce
of the same fold and seed; its interval of 95 % is Student's t over these pairs, which
are not quite independent, as folds share training rows.

Beside it, quadratics whose limits are known (`heterogeneity_quadratics`).
"""

import math
import time
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.report import Plot, Result, Run, Table, benchmark
from benchmarks.training.heterogeneity_data import Splits, splits_of
from benchmarks.training.heterogeneity_methods import ENTRIES, Entry
from benchmarks.training.heterogeneity_quadratics import quadratics
from benchmarks.training.heterogeneity_training import BATCH, WIDTH, train
from benchmarks.training.study import interval

ALPHAS = (1.0, 0.1, 0.01)
RATES = (0.2, 0.8, 2.0)
TARGET = 1.0  # points, of corrected methods at the smallest alpha
Row = dict[str, Any]


@benchmark("heterogeneity")
def heterogeneity(
    run: Run,
    seeds: Annotated[int, typer.Option(min=1, help="Splits and starts.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a run.")] = 400,
    workers: Annotated[int, typer.Option(min=2, help="Workers.")] = 16,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the digits.")] = 5,
) -> Result:
    """Decentralized methods on digits split by label over 16 workers."""
    start = time.perf_counter()
    splits = splits_of(alphas=ALPHAS, seeds=range(seeds), folds=folds, workers=workers)
    rows: list[Row] = []
    base: dict[float, list[float]] = {}
    for entry in ENTRIES:
        rates = np.asarray(RATES, np.float32) / (10 if entry.momentum else 1)
        trained = train(entry.make, rates, splits, steps)
        for alpha in ALPHAS:
            row = _row(entry, alpha, splits, rates, trained)
            base.setdefault(alpha, row["accuracies"])
            pairs = 100 * np.subtract(row["accuracies"], base[alpha])
            row["points"] = interval(pairs)
            rows.append(row)
            print(row["method"], alpha, row["points"], flush=True)
    conditions = run.conditions(
        rates=RATES,
        batch_size=workers * BATCH,
        hidden=WIDTH,
        seconds=round(time.perf_counter() - start),
    )
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        x, y = lines.setdefault(row["method"], ([], []))
        x.append(row["alpha"])
        y.append(float(np.mean(row["accuracies"])))
    rests, title = quadratics(workers), "Digits split by label"
    return run.finish(
        {"conditions": conditions, "target": TARGET, "rows": rows, "quadratics": rests},
        tables=[
            Table.of(
                title,
                rows,
                *("method", "alpha", "rate"),
                ("accuracy", lambda row: f"{100 * np.mean(row['accuracies']):.2f}"),
                ("points", lambda row: f"{row['points'][0]:+.2f}"),
                ("95 %", lambda row: "[{:+.2f}, {:+.2f}]".format(*row["points"][1:])),
                "distance",
            ),
            Table.of(
                "Quadratics with unlike minima",
                rests,
                "method",
                ("distance from the minimum", "found"),
                "theory",
                ("largest difference", "apart"),
            ),
        ],
        notes=_verdicts(rows),
        plots=[Plot(title, ("alpha", "held-out accuracy"), lines)],
    )


def _row(entry: Entry, alpha: float, splits: Splits, rates: Any, trained: Any) -> Row:
    """A method at an alpha, with the rate that trains best."""
    here = splits.alphas == alpha
    losses = np.nan_to_num(trained.loss[here].mean(axis=0), nan=math.inf)
    best = int(losses.argmin())
    return {
        "method": entry.name,
        "corrected": entry.corrected,
        "alpha": alpha,
        "rate": float(rates[best]),
        "loss": float(losses[best]),
        "distance": float(trained.distance[here, best].mean()),
        "accuracies": trained.accuracy[here, best].tolist(),
    }


def _verdicts(rows: Sequence[Row]) -> list[str]:
    """Whether corrected methods meet the target at the smallest alpha."""
    verdicts = []
    for row in rows:
        if row["corrected"] and row["alpha"] == min(ALPHAS):
            mean, low, _ = row["points"]
            verdict = "met" if mean >= -TARGET else "missed"
            verdict += "" if low >= -TARGET else ", not by its whole interval"
            name = f"{row['method']}, alpha {row['alpha']}"
            verdicts.append(f"{name}: {mean:+.2f}, {verdict}")
    return verdicts
