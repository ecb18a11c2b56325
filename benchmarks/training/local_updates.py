"""Local steps and outer optimizers beside all-reduce, on characters, equal samples.

What a row shows is mathematics: bits per character of the consensus model, and bytes of
the whole run, of workers in lock step. Every method has the batches, the steps, the
optimizer and the schedule of its parent. A parent runs at each peak rate of `RATES` and
its best run counts; a method's peak stands in its entry.
"""

import functools
from collections.abc import Sequence
from typing import Annotated

import typer

from benchmarks.report import Result, Run, Runs, benchmark
from benchmarks.training.methods import Entry, Row, compare
from relaxjax import emulate
from relaxjax.tasks import Task, chars

TARGETS = {100: 0.02, 400: 0.01}  # of the ring's bytes 1 / this, worse by at most
RATES = {"adamw": (0.016, 0.032, 0.064), "muon": (0.01, 0.02, 0.04)}
_MEAN = {"outer_learning_rate": 1.0, "outer_momentum": 0.0}
_SLOW = {"outer_learning_rate": 1.0, "outer_momentum": 0.3}
_LATE = {"outer_learning_rate": 0.5, "outer_momentum": 0.0}
_adamw = functools.partial(Entry, learning_rate=0.016)
_fast_adamw = functools.partial(Entry, learning_rate=0.032)
_muon = functools.partial(Entry, optimizer="muon", learning_rate=0.02)
ENTRIES = (
    _adamw("local_sgd", {"sync_every": 5}),
    _adamw("local_sgd", {"sync_every": 30}),
    _adamw("local_sgd", {"sync_every": 5}, mesh=emulate(2)),
    _adamw("local_sgd", {"sync_every": 5}, mesh=emulate(16)),
    _adamw("diloco", {"sync_every": 15, **_SLOW}),
    _fast_adamw("diloco+quantize4+ef14", {"sync_every": 16, **_SLOW}),
    _adamw("diloco+sign+ef14", {"sync_every": 6, **_MEAN}),
    _adamw("diloco+sign+ef14", {"sync_every": 24, **_MEAN}),
    _adamw("streaming_diloco", {"sync_every": 6, "overlap": 1, **_MEAN}),
    _adamw("eager_diloco", {"sync_every": 5, **_LATE}),
    _fast_adamw("sparse_loco", {"sync_every": 3}),
    _adamw("sparse_loco", {"sync_every": 12}),
    _muon("muloco", {"sync_every": 5, **_MEAN}),
)


def small_chars(seed: int) -> Task:
    """The characters for a model of 23 136 parameters."""
    return chars(seed, width=32, layers=1)


@benchmark("later")
def local_updates(
    run: Run,
    steps: Annotated[int, typer.Option(min=2, help="Steps of a run.")] = 3000,
    seeds: Runs = 1,
) -> Result:
    """Local steps and outer optimizers beside all-reduce, on characters."""
    return compare(
        run,
        {"chars": small_chars},
        ENTRIES,
        steps=steps,
        seeds=seeds,
        rates=RATES,
        target=TARGETS[100],
        judge=lambda rows: [verdict(rows, *target) for target in TARGETS.items()],
    )


def verdict(rows: Sequence[Row], budget: int, target: float) -> str:
    """Whether the best row within a budget is within the target of its parent.

    Args:
      rows: rows of `compare`.
      budget: 1 / this of the ring's bytes are allowed.
      target: the most that it may be worse, relative.
    """
    fit = [row for row in rows if row["share"] <= 1 / budget]
    if not fit:
        return f"1/{budget}: nothing fits"
    best = min(fit, key=lambda row: row["worse"][0])
    gap = best["worse"][0]
    met = "met" if gap <= target else "missed"
    return f"1/{budget}: {target:.0%} {met}: {gap:+.2%} by {best['method']}"
