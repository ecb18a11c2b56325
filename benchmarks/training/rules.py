"""What the rules of `relaxjax.merges` cost where nobody is wrong.

DiLoCo on digits, split by label over the workers (`heterogeneity_data`): at alpha 1000
all see the same data, at 0.1 one or two labels each. Every rule tries the same learning
rates and outer momenta (and `centered_clip` its radii), and the setting of the least
mean training loss counts, for each alpha and number of workers. Its tax is the
difference in points of held-out accuracy to the mean, of the same fold and seed; the
interval of 95 % is Student's t over these pairs.

Beside it, the bounds of islands: contributions that are longer than 10 times the median
are left out; and one worker takes 16 steps where the others take 2, so that a cap of
weights matters.
"""

import itertools
import math
import time
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

from benchmarks.report import Result, Run, Table, benchmark
from benchmarks.training.heterogeneity_data import Splits, splits_of
from benchmarks.training.rules_training import (
    LIMIT,
    Ended,
    Knobs,
    times_the_median,
    train,
)
from benchmarks.training.study import interval
from relaxjax import merges
from relaxjax.merges import Rule, merged

ALPHAS = {1000.0: "same data", 0.1: "own labels"}
RATES, MOMENTA, RADII = (0.1, 0.3, 1.0), (0.5, 0.9), (0.3, 1.0, 3.0)
EVERY = 10  # steps from one merge to the next
FAST, SLOW = 16, 2  # steps in a round, of one worker and of the others
RULES: dict[str, tuple[Rule, ...]] = {
    "clipped()": (merges.clipped(),),
    'clipped("all")': (merges.clipped("all"),),
    '"rda"': (merges.rda("mean", cap=None),),
    "rda()": (merges.rda(),),
    "median()": (merges.median(),),
    "trimmed(1)": (merges.trimmed(1),),
    "geometric_median()": (merges.geometric_median(),),
    "centered_clip(radius)": tuple(map(merges.centered_clip, RADII)),
    "nearest(1, median())": (merges.nearest(1, merges.median()),),
}
Row = dict[str, Any]


@benchmark("rules", platform="cpu")
def rules(
    run: Run,
    seeds: Annotated[int, typer.Option(min=1, help="Splits and starts.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Merges of a run.")] = 40,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the digits.")] = 3,
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "8,16",
) -> Result:
    """Rules of merges where nobody is wrong: what they cost in accuracy."""
    began, rows, bounds = time.perf_counter(), list[Row](), list[Row]()
    for n in map(int, workers.split(",")):
        splits = splits_of(
            alphas=list(ALPHAS), seeds=range(seeds), folds=folds, workers=n
        )
        same = np.full(n, EVERY)
        base = train(_mean, _knobs(), splits, rounds, same)
        rows += _rows("mean", n, splits, [base], base)
        for name, tried in RULES.items():
            ended = [
                train(partial(merged, rule), _knobs(), splits, rounds, same)
                for rule in tried
            ]
            rows += _rows(name, n, splits, ended, base)
            print(n, name, [round(row["points"][0], 2) for row in rows[-2:]])
        bounds += _limited(n, splits, rounds, base)
        bounds += _fast(n, splits, rounds)
    conditions = run.conditions(
        rates=RATES, momenta=MOMENTA, radii=RADII, every=EVERY, alphas=list(ALPHAS),
        seconds=round(time.perf_counter() - began),
    )  # fmt: skip
    return run.finish(
        {"conditions": conditions, "rows": rows, "bounds": bounds},
        tables=[
            _table("Nobody is wrong", rows),
            _table("Bounds of islands", bounds),
        ],
    )


def _mean(rows: Any, weights: Any) -> Any:
    """The mean by weights."""
    share = weights / weights.sum()
    return jax.tree.map(lambda x: jnp.tensordot(share, x, 1), rows)


def _capped(rows: Any, weights: Any, rule: Any = _mean) -> Any:
    """A rule in the bounds of islands: up to 2^2 times the median weight."""
    return rule(rows, jnp.minimum(weights, 4 * jnp.median(weights)))


FAST_RULES = {
    "mean, cap 2": _capped,
    '"rda", cap 2': partial(_capped, rule=partial(merged, RULES['"rda"'][0])),
    'clipped("all")': partial(merged, RULES['clipped("all")'][0]),
}


def _limited(n: int, splits: Splits, rounds: int, base: Ended) -> list[Row]:
    """Without contributions that are too long, by the words that islands merge by."""
    rows = []
    for name, rule in {
        "mean": _mean,
        '"rda"': partial(merged, RULES['"rda"'][0]),
    }.items():

        def within(moves: Any, weights: jax.Array, rule: Any = rule) -> Any:
            return rule(moves, weights * (times_the_median(moves) <= LIMIT))

        ended = train(within, _knobs(), splits, rounds, np.full(n, EVERY))
        rows += _rows(f"{name}, limit {LIMIT:g}", n, splits, [ended], base)
    return rows


def _fast(n: int, splits: Splits, rounds: int) -> list[Row]:
    """One worker or half of them take more steps: weights as they are, and capped."""
    rows = []
    for name, fast in {"one fast": 1, "half fast": n // 2}.items():
        steps = np.array([FAST] * fast + [SLOW] * (n - fast))
        base = train(_mean, _knobs(), splits, 2 * rounds, steps)
        rows += _rows(f"mean, {name}", n, splits, [base], base)
        for rule, merge in FAST_RULES.items():
            ended = train(merge, _knobs(), splits, 2 * rounds, steps)
            rows += _rows(f"{rule}, {name}", n, splits, [ended], base)
    return rows


def _knobs() -> Knobs:
    return Knobs(*np.transpose(list(itertools.product(RATES, MOMENTA))))


def _rows(
    name: str, workers: int, splits: Splits, ended: list[Ended], base: Ended
) -> list[Row]:
    """A rule on each kind of data, in the setting that trains best."""
    whole = Ended(*(np.concatenate(x, axis=1) for x in zip(*ended, strict=True)))
    rows = []
    for alpha, kind in ALPHAS.items():
        here = splits.alphas == alpha
        best, usual = _best(whole.loss[here]), _best(base.loss[here])
        accuracies = whole.accuracy[here, best]
        pairs = 100 * (accuracies - base.accuracy[here, usual])
        settings = list(itertools.product(RATES, MOMENTA))
        rows.append(
            {
                "rule": name,
                "workers": workers,
                "data": kind,
                "rate": settings[best % len(settings)][0],
                "momentum": settings[best % len(settings)][1],
                "radius": RADII[best // len(settings)] if len(ended) > 1 else None,
                "loss": float(whole.loss[here, best].mean()),
                "accuracies": accuracies.tolist(),
                "points": interval(pairs) if pairs.any() else [0.0, 0.0, 0.0],
                "longest": float(whole.longest[here, best].max()),
                "beyond": float(whole.beyond[here, best].mean()),
            }
        )
    return rows


def _best(losses: np.ndarray) -> int:
    """The setting with the least mean training loss."""
    return int(np.nan_to_num(losses.mean(axis=0), nan=math.inf).argmin())


def _table(title: str, rows: list[Row]) -> Table:
    return Table.of(
        title,
        rows,
        *("rule", "workers", "data", "rate", "momentum"),
        ("accuracy", lambda row: f"{100 * np.mean(row['accuracies']):.2f}"),
        ("points", lambda row: f"{row['points'][0]:+.2f}"),
        ("95 %", lambda row: "[{:+.2f}, {:+.2f}]".format(*row["points"][1:])),
        ("longest over median", lambda row: f"{row['longest']:.2f}"),
        ("beyond 10", lambda row: f"{row['beyond']:.2%}"),
    )
