"""Who reaches the target first over bandwidth and latency: equal quality for all.

The time of a method is its steps to the target, measured, times its predicted seconds
of a step on that network. A method that does not reach the target wins nowhere.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from relaxjax.compare._summary import Summary

Seconds = Callable[[str, float, float], float]
"""Predicted seconds of a step, from method, latency in seconds, and bytes a second."""
GBPS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 400.0)
LATENCY_MS = (0.005, 0.05, 0.5, 5.0, 50.0)
CLOSE = 0.1
"""A method within this part of the winner's time makes the win a close one."""


class Win(NamedTuple):
    """The first at one bandwidth and latency.

    Attributes:
      method: its label; None where no method reaches the target.
      times: the baseline's time over its time; None where the baseline has none.
      close: whether another method is within 10 % of its time.
    """

    method: str | None
    times: float | None
    close: bool


def winners(
    summary: Summary,
    seconds: Seconds,
    *,
    gbps: Sequence[float] = GBPS,
    latency_ms: Sequence[float] = LATENCY_MS,
) -> list[list[Win]]:
    """The winner of each cell.

    Args:
      summary: a study in numbers.
      seconds: predicted seconds of a step.
      gbps: bandwidths, Gbit/s.
      latency_ms: latencies, milliseconds.

    Returns:
      A row for each latency, with an entry for each bandwidth.
    """

    def at(latency: float, bandwidth: float) -> Win:
        times = {
            row.method: row.steps_to_target
            * seconds(row.method, latency / 1e3, bandwidth * 1e9 / 8)
            for row in summary.rows
            if row.steps_to_target is not None
        }
        if not times:
            return Win(None, None, False)
        order = sorted(times, key=lambda name: times[name])
        first, base = times[order[0]], times.get(summary.baseline)
        close = len(order) > 1 and times[order[1]] <= (1 + CLOSE) * first
        return Win(order[0], base and base / first, close)

    return [[at(latency, bandwidth) for bandwidth in gbps] for latency in latency_ms]
