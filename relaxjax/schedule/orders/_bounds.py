"""How good an order could be: bounds on the makespan and the metrics from them.

Source: Hashemi et al., "TicTac", MLSys 2019, equations 1 to 4.

    U = sum over all ops of Time(op)                              fully serial
    L = max over resources d of the sum over ops in G_d           perfect overlap
    E = (U - m) / (U - L)            1 is perfect overlap, 0 is serial
    S = (U - L) / L                  0: one resource dominates; 1: two are balanced

L ignores the graph: the first operation must wait for its recvs and the last recv is
followed by what depends on it, so E = 1 is usually out of reach. A tighter bound is

    max( sum M + min_r Q_r,  sum P + min_op (op.M - W_0),  longest path )

with Q_r the computation that depends on r (all of it runs after the last recv), W_0
the computation that needs no recv, and the minimum over operations that need some.

Cost: O(V n).
"""

import operator
from typing import NamedTuple

from relaxjax._core.foreign._fields import check_seconds
from relaxjax._core.foreign._ranges import PREDICTED
from relaxjax.schedule.graphs._graph import Graph, bits, latest


class Bounds(NamedTuple):
    """Bounds on the makespan, in seconds.

    Attributes:
      lower: L, the work of the busiest resource.
      upper: U, all the work done serially.
    """

    lower: float
    upper: float


def bounds(graph: Graph) -> Bounds:
    """L and U of a graph (equations 1 and 2).

    Args:
      graph: the worker's graph; recvs, operations and sends are its three resources.

    Example:
      >>> bounds(Graph(recvs={"w": 2.0}, ops={"dot": (3.0, ["w"])}))
      Bounds(lower=3.0, upper=5.0)
    """
    pushes = sum(seconds for seconds, _ in graph.sends.values())
    work = (graph.communication, graph.computation, pushes)
    return Bounds(max(work), sum(work))


def efficiency(graph: Graph, makespan: float) -> float:
    """Scheduling efficiency E of a makespan (equation 3).

    Args:
      graph: the worker's graph.
      makespan: seconds.

    Returns:
      1.0 for perfect overlap, 0.0 for no overlap; 1.0 if one resource has all the work.

    Raises:
      ValueError: a makespan below L or above U, which no schedule has.

    Example:
      >>> graph = Graph(recvs={"w": 2.0}, ops={"dot": (3.0, ["w"])})
      >>> efficiency(graph, makespan=5.0)
      0.0
    """
    lower, upper = bounds(graph)
    seconds = check_seconds("makespan", makespan, PREDICTED)
    slack = 1e-9 * upper
    if not lower - slack <= seconds <= upper + slack:
        raise ValueError(
            f"makespan must lie between L = {lower} and U = {upper} s, got {makespan}: "
            "does it belong to another graph?"
        )
    return 1.0 if upper <= lower else (upper - seconds) / (upper - lower)


def speedup_potential(graph: Graph) -> float:
    """S, how much the best conceivable order gains over the worst (equation 4).

    Args:
      graph: the worker's graph.

    Returns:
      0.0 if one resource dominates, up to 1.0 for two balanced ones.

    Example:
      >>> speedup_potential(Graph(recvs={"w": 2.0}, ops={"dot": (2.0, ["w"])}))
      1.0
    """
    lower, upper = bounds(graph)
    return (upper - lower) / lower if lower else 0.0


def lower_bound(graph: Graph) -> float:
    """A bound that takes the graph into account: no order has a smaller makespan.

    Args:
      graph: the worker's graph.

    Returns:
      Seconds, at least `bounds(graph).lower`.

    Example:
      >>> lower_bound(Graph(recvs={"w": 2.0}, ops={"dot": (3.0, ["w"])}))
      5.0
    """
    times = list(graph.recvs.values())
    depending = [0.0] * len(times)  # Q_r
    heads = []
    free = 0.0  # W_0
    for name, mask in graph.masks.items():
        if mask:
            heads.append(sum(times[i] for i in bits(mask)))
        else:
            free += graph.ops[name][0]
        for i in bits(mask):
            depending[i] += graph.ops[name][0]
    ends = dict(graph.recvs)  # of longest paths
    for name, (seconds, needs) in graph.ops.items():
        ends[name] = seconds + latest(ends, needs)
    starts = [latest(ends, needs) for _, needs in graph.sends.values()]
    pushes = [seconds for seconds, _ in graph.sends.values()]
    return max(
        bounds(graph).lower,
        graph.communication + min(depending, default=0.0),
        graph.computation + max(0.0, min(heads, default=0.0) - free),
        sum(pushes) + min(starts, default=0.0),
        max([*ends.values(), *map(operator.add, starts, pushes)], default=0.0),
    )


def gap(graph: Graph, makespan: float) -> float:
    """The share by which a makespan exceeds `lower_bound`: the most one could gain.

    Args:
      graph: the worker's graph.
      makespan: seconds.

    Returns:
      0.0 if the order is provably optimal.

    Raises:
      ValueError: a makespan below the bound, which no schedule has.

    Example:
      >>> gap(Graph(recvs={"w": 2.0}, ops={"dot": (2.0, ["w"])}), 5.0)
      0.25
    """
    least = lower_bound(graph)
    seconds = check_seconds("makespan", makespan, PREDICTED)
    if seconds < least * (1 - 1e-9):
        raise ValueError(
            f"makespan must be at least the bound {least} s, got {makespan}: does it "
            "belong to another graph?"
        )
    return seconds / least - 1.0 if least else 0.0
