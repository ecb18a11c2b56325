"""Who reaches the target first over bandwidth and latency: equal quality for all.

The time of a method is its steps to the target, measured, times its predicted seconds
of a step on that network. A method that does not reach the target wins nowhere,
and neither does one all of whose runs diverged after it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from relaxjax.compare.kept._summary import Summary

Grid = Mapping[str, Any]
"""`gbps`, `latency_ms`, and `seconds` of a step by method: a row for each latency."""
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


def winners(summary: Summary, grid: Grid) -> list[list[Win]]:
    """The winner of each cell.

    Args:
      summary: a study in numbers.
      grid: predicted seconds of a step, as in `study.json` under `map`.

    Returns:
      A row for each latency, with an entry for each bandwidth.
    """

    def at(y: int, x: int) -> Win:
        times = {
            row.method: row.steps_to_target * grid["seconds"][row.method][y][x]
            for row in summary.rows
            if row.stands
            and row.steps_to_target is not None
            and row.method in grid["seconds"]
        }
        if not times:
            return Win(None, None, False)
        order = sorted(times, key=lambda name: times[name])
        first, base = times[order[0]], times.get(summary.baseline)
        close = len(order) > 1 and times[order[1]] <= (1 + CLOSE) * first
        return Win(order[0], base and base / first, close)

    places = range(len(grid["gbps"]))
    return [[at(y, x) for x in places] for y in range(len(grid["latency_ms"]))]
