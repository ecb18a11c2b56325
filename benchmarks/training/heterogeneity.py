"""Workers whose data differ: what separates decentralised methods.

Digits are split by label over the workers (`_heterogeneity_data`), in five folds, so
that every image is held out once. All methods take the same steps from the same starts
with the same batches. Each tries the same learning rates (with momentum a tenth of
them), and for each alpha the one of the least mean training loss counts; what is held
out has no say in it. A difference is in points of held-out accuracy to the all-reduce
of the same fold and seed; its interval of 95 % is Student's t over these pairs, which
are not quite independent, as folds share training rows.

Beside it, quadratics whose limits are known (`_heterogeneity_quadratics`).
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.report import conditions, plot, save, show
from benchmarks.training.heterogeneity_data import Runs, runs_of
from benchmarks.training.heterogeneity_methods import ENTRIES, Entry
from benchmarks.training.heterogeneity_quadratics import quadratics
from benchmarks.training.heterogeneity_training import BATCH, WIDTH, train

WORKERS, FOLDS = 16, 5
ALPHAS = (1.0, 0.1, 0.01)
RATES = (0.2, 0.8, 2.0)
TARGET = 1.0  # points, of corrected methods at the smallest alpha
Row = dict[str, Any]


def heterogeneity(
    *,
    alphas: Sequence[float] = ALPHAS,
    seeds: int = 3,
    steps: int = 400,
    workers: int = WORKERS,
    folds: int = FOLDS,
    entries: Sequence[Entry] = ENTRIES,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Trains with every method at every alpha.

    Args:
      alphas: of the Dirichlet distributions; the smaller, the less alike are the data.
      seeds: number of splits and starts.
      steps: of each run.
      workers: number.
      folds: number.
      entries: what is compared with the first of them.
      out: folder for JSON and plot.

    Returns:
      What was measured, as saved.
    """
    start = time.perf_counter()
    runs = runs_of(alphas=alphas, seeds=range(seeds), folds=folds, workers=workers)
    rows: list[Row] = []
    base: dict[float, list[float]] = {}
    for entry in entries:
        rates = np.asarray(RATES, np.float32) / (10 if entry.momentum else 1)
        trained = train(entry.make, rates, runs, steps)
        for alpha in alphas:
            row = _row(entry, alpha, runs, rates, trained)
            base.setdefault(alpha, row["accuracies"])
            row["points"] = _points(row["accuracies"], base[alpha])
            rows.append(row)
            print(row["method"], alpha, row["points"], flush=True)
    result = {
        "conditions": conditions(
            workers=workers,
            folds=folds,
            seeds=seeds,
            steps=steps,
            rates=RATES,
            batch_size=workers * BATCH,
            hidden=WIDTH,
            seconds=round(time.perf_counter() - start),
        ),
        "target": TARGET,
        "rows": rows,
        "quadratics": quadratics(workers),
    }
    _report(result, alphas, out)
    return result


def _row(entry: Entry, alpha: float, runs: Runs, rates: Any, trained: Any) -> Row:
    """A method at an alpha, with the rate that trains best."""
    here = runs.alphas == alpha
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


def _points(found: Sequence[float], base: Sequence[float]) -> list[float]:
    """100 times the mean difference of pairs, and the ends of its interval."""
    pairs = 100 * (np.asarray(found) - np.asarray(base))
    width = stats.t.ppf(0.975, len(pairs) - 1) * stats.sem(pairs)
    return [float(x) for x in pairs.mean() + np.array([0, -width, width])]


def _report(result: dict[str, Any], alphas: Sequence[float], out: str) -> None:
    print(result["conditions"])
    rows = result["rows"]
    columns = ("method", "alpha", "rate", "accuracy", "points", "95 %", "distance")
    show("Digits split by label", columns, [_cells(row) for row in rows])
    columns = ("method", "distance from the minimum", "theory", "largest difference")
    cells = [tuple(row.values()) for row in result["quadratics"]]
    show("Quadratics with unlike minima", columns, cells)
    for row in rows:
        if row["corrected"] and row["alpha"] == min(alphas):
            mean, low, _ = row["points"]
            verdict = "met" if mean >= -TARGET else "missed"
            verdict += "" if low >= -TARGET else ", not by its whole interval"
            print(f"{row['method']}, alpha {row['alpha']}: {mean:+.2f}, {verdict}")
    path = save(result, out, "heterogeneity")
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        x, y = lines.setdefault(row["method"], ([], []))
        x.append(row["alpha"])
        y.append(float(np.mean(row["accuracies"])))
    plot(path, "Digits split by label", ("alpha", "held-out accuracy"), lines)


def _cells(row: Row) -> tuple[object, ...]:
    mean, low, high = row["points"]
    return (
        row["method"],
        row["alpha"],
        row["rate"],
        f"{100 * np.mean(row['accuracies']):.2f}",
        f"{mean:+.2f}",
        f"[{low:+.2f}, {high:+.2f}]",
        row["distance"],
    )
