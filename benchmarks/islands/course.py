"""Tokens in the model over time, between the start and the stop of a run."""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from benchmarks.islands.live import Lived
from benchmarks.islands.setting import Setting

Course = list[tuple[float, float]]
"""Pairs of seconds since the start, and tokens since then."""


def of_merges(setting: Setting, lived: Lived, here: list[Any]) -> Course:
    """A pair for each merge; a contribution counts for its part of the model."""
    tokens = (sum(c["tokens"] for c in r["contributions"]) for r in here)
    times = (lived.commits[r["version"]] - lived.start for r in here)
    sums = accumulate(tokens)
    return [
        (round(at, 2), round(sum_ / setting.fragments))
        for at, sum_ in zip(times, sums, strict=True)
    ]


def of_steps(
    setting: Setting, lived: Lived, steps: Iterable[Any], first: int
) -> Course:
    """A pair for each second in which a process says its step; it may fall again."""
    tokens = setting.rows * setting.islands
    found: dict[int, tuple[float, float]] = {}
    for x in steps:
        at = x["at"] - lived.start
        if lived.start <= x["at"] <= lived.stop:
            found[int(at)] = round(at, 2), (x["steps"] - first) * tokens
    return [*found.values()]
