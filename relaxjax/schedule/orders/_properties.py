"""What each outstanding recv would set free and what it impends, and exact times.

Source: Hashemi et al., "TicTac", MLSys 2019, Algorithm 1 (UpdateProperties), as
released by its authors.

    op.M      sum of Time(r) over r in op.dep & R: communication still ahead of op
    recv.P    sum of Time(op) over ops with op.dep & R == {recv}: set free by it alone
    recv.M+   min of op.M over ops with |op.dep & R| > 1 and recv in op.dep (own time
              included), infinite if there is no such op

R is the set of outstanding recvs.

Orders are decided by comparing such sums. In floating point `0.1 + 0.2` and `0.3`
differ, so that a sum taken in another order, or a change of unit, could turn a tie into
a preference; `ticks` are integers, on which Python adds without rounding.

Cost: O(V n) for V operations and n outstanding recvs.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from relaxjax.schedule.graphs._graph import Graph

_DENOMINATOR = 1000
_ROUNDING = 1e-12


class Properties(NamedTuple):
    """Properties of one outstanding recv, in seconds.

    Attributes:
      M: its own communication time.
      P: computation that it alone still holds up.
      M_plus: the least communication that completes an operation that needs this recv
        and others; infinite if there is no such operation.
    """

    M: float
    P: float
    M_plus: float


def properties(
    graph: Graph,
    *,
    outstanding: Iterable[str] | None = None,
    time: Callable[[str], float] | None = None,
) -> dict[str, Properties]:
    """P and M+ of every outstanding recv (Algorithm 1).

    Args:
      graph: the worker's graph.
      outstanding: R, the recvs not yet activated; by default all of them.
      time: gives the seconds of a recv; by default those of the graph.

    Returns:
      Properties by name, for the recvs in R.

    Raises:
      ValueError: `outstanding` names something else.

    Example:
      >>> graph = Graph(
      ...     recvs={"recv1": 2.0, "recv2": 3.0},
      ...     ops={"op1": (4.0, ["recv1"]), "op2": (1.0, ["op1", "recv2"])},
      ... )
      >>> properties(graph)["recv1"]
      Properties(M=2.0, P=4.0, M_plus=5.0)
    """
    names = list(graph.recvs if outstanding is None else outstanding)
    if unknown := [name for name in names if name not in graph.recvs]:
        raise ValueError(f"outstanding must name recvs of the graph, got {unknown}")
    seconds = {name: time(name) if time else graph.recvs[name] for name in names}
    bit = {name: 1 << i for i, name in enumerate(graph.recvs)}
    held_up = dict.fromkeys(names, 0.0)
    impending = dict.fromkeys(names, math.inf)
    for op, mask in graph.masks.items():
        needed = [name for name in names if mask & bit[name]]
        if len(needed) == 1:
            held_up[needed[0]] += graph.ops[op][0]
        communication = sum(seconds[name] for name in needed)
        for name in needed if len(needed) > 1 else ():
            impending[name] = min(impending[name], communication)
    return {n: Properties(seconds[n], held_up[n], impending[n]) for n in names}


def ticks(times: Sequence[float]) -> list[int]:
    """Integers in the proportions of `times`, non-negative finite seconds.

    Times that are small rational multiples of the smallest one (such as 2, 3 and 5 in
    any unit) are read as such; any others are taken as the exact binary fractions that
    floats are.

    Example:
      >>> ticks([0.1, 0.2, 0.3])
      [1, 2, 3]
      >>> ticks([1.5e-6, 0.0, 1e-6])
      [3, 0, 2]
    """
    unit = min((t for t in times if t > 0), default=1.0)
    near = {t: Fraction(t) for t in set(times)}
    if not math.isinf(max(times, default=0.0) / unit):
        near = _commensurable(near, unit) or near
    scale = math.lcm(*(ratio.denominator for ratio in near.values()))
    return [int(near[t] * scale) for t in times]


def exact_times(graph: Graph) -> tuple[list[int], Counter[int]]:
    """Ticks of the recvs, and of the operations by op.dep, as bits."""
    n = len(graph.recvs)
    times = ticks([*graph.recvs.values(), *(t for t, _ in graph.ops.values())])
    freed: Counter[int] = Counter()
    for mask, time in zip(graph.masks.values(), times[n:], strict=True):
        freed[mask] += time
    return times[:n], freed


def _commensurable(times: Iterable[float], unit: float) -> dict[float, Fraction] | None:
    """Small rational multiples of the unit, if all times are; else None."""
    near = {t: Fraction(t / unit).limit_denominator(_DENOMINATOR) for t in times}
    fits = all(
        abs(float(ratio) * unit - t) <= _ROUNDING * t for t, ratio in near.items()
    )
    return near if fits else None
