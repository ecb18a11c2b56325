"""Timing in interleaved rounds, and ratios with an interval.

A shared machine is never equally loaded twice, so a candidate and its baseline take
turns, each pair of neighbors in time gives one ratio, and the ratios' median is
reported. Its 95 % interval is that of the order statistics: with n pairs, the ranks
between which a Binomial(n, 1/2) count falls (Conover, Practical Nonparametric
Statistics, section 3.2). No assumption is made about how times are distributed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.stats import binom


class Ratio(NamedTuple):
    """A median of paired ratios, the ends of its 95 % interval, and the pairs."""

    median: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        """The text of a table, such as `1.010 [0.990, 1.030]`."""
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def ratio(candidate: Sequence[float], baseline: Sequence[float]) -> Ratio:
    """The median ratio of two series of seconds, equally long and paired in order."""
    ratios = np.sort(np.asarray(candidate) / np.asarray(baseline))
    low, high = binom.interval(0.95, len(ratios), 0.5)
    last = len(ratios) - 1
    return Ratio(
        float(np.median(ratios)),
        float(ratios[max(0, int(low) - 1)]),
        float(ratios[min(last, int(high))]),
        len(ratios),
    )


def text_of(saved: Mapping[str, Any]) -> str:
    """The text of a ratio that was saved."""
    return str(Ratio(**saved))


def interleaved(
    runs: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, list[float]]:
    """Seconds that each of some runs takes, taking turns.

    Args:
      runs: functions by name, each called twice before timing starts; what they return
        is awaited. Every other round goes backwards, so that no run is always first.
      rounds: number of timed calls of each.

    Returns:
      Seconds by name, in order of time.
    """
    for run in runs.values():
        for _ in range(2):
            jax.block_until_ready(run())
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs)[:: 1 if turn % 2 else -1]:
            seconds[name].append(timed(runs[name]))
    return seconds


def timed(run: Callable[[], Any]) -> float:
    """Seconds of a call, until what it returns is there."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    low, middle, high = np.percentile(np.asarray(seconds), [25, 50, 75])
    return float(low), float(middle), float(high)


def milliseconds(seconds: Sequence[float]) -> list[float]:
    """The quartiles in milliseconds."""
    return [1e3 * x for x in quartiles(seconds)]


def stepper(
    step: Callable[..., Any], state: list[Any], batch: Any
) -> Callable[[], Any]:
    """A function that takes one more step from the state with each call."""

    def run() -> Any:
        *state[:], metrics = step(*state, batch)
        return state, metrics

    return run
