"""How good an order could be: bounds on the makespan and the metrics from them.

Source: Hashemi et al., "TicTac", MLSys 2019, equations 1 to 4.

    U = sum over all ops of Time(op)                              fully serial
    L = max over resources d of the sum over ops in G_d           perfect overlap
    E = (U - m) / (U - L)            1 is perfect overlap, 0 is serial
    S = (U - L) / L                  0: one resource dominates; 1: two are balanced

L ignores the graph: the first operation must wait for its recvs and the last recv is
followed by what depends on it, so E = 1 is usually out of reach. A better bound is

    max( sum M + min_r Q_r,  sum P + min_op (op.M - W_0),  longest path )

with Q_r the computation that depends on r (all of it runs after the last recv), W_0
the computation that needs no recv, and the minimum over operations that need some.

Cost: O(V n).
"""

from typing import NamedTuple

from relaxjax._core._checks import check_seconds
from relaxjax.schedule._graph import Graph


class Bounds(NamedTuple):
    """Bounds on the makespan, in seconds.

    Attributes:
        lower: L, the work of the busiest resource.
        upper: U, all the work, one thing after the other.
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
        1.0 for perfect overlap, 0.0 for none; 1.0 where one resource has all the work.

    Raises:
        ValueError: a makespan below L or above U, which no schedule has.

    Example:
        >>> graph = Graph(recvs={"w": 2.0}, ops={"dot": (3.0, ["w"])})
        >>> efficiency(graph, makespan=5.0)
        0.0
    """
    lower, upper = bounds(graph)
    seconds = check_seconds("makespan", makespan)
    slack = 1e-9 * upper
    if not lower - slack <= seconds <= upper + slack:
        raise ValueError(
            f"makespan must lie between L = {lower} and U = {upper} s, got {makespan}: "
            "is it of another graph?"
        )
    return 1.0 if upper <= lower else (upper - seconds) / (upper - lower)


def speedup_potential(graph: Graph) -> float:
    """S, by how much the best conceivable order beats the worst (equation 4).

    Args:
        graph: the worker's graph.

    Returns:
        0.0 where one resource dominates, up to 1.0 for two balanced ones.

    Example:
        >>> speedup_potential(Graph(recvs={"w": 2.0}, ops={"dot": (2.0, ["w"])}))
        1.0
    """
    lower, upper = bounds(graph)
    return (upper - lower) / lower if lower else 0.0


def lower_bound(graph: Graph) -> float:
    """A bound that looks at the graph: no order has a smaller makespan.

    Args:
        graph: the worker's graph.

    Returns:
        Seconds, at least `bounds(graph).lower`.

    Example:
        >>> lower_bound(Graph(recvs={"w": 2.0}, ops={"dot": (3.0, ["w"])}))
        5.0
    """
    depending = [0.0] * len(graph.recvs)
    heads = []
    free = 0.0  # W_0
    times = list(graph.recvs.values())
    for name, mask in graph.masks.items():
        needed = [i for i in range(len(times)) if mask >> i & 1]
        if needed:
            heads.append(sum(times[i] for i in needed))
        else:
            free += graph.ops[name][0]
        for i in needed:
            depending[i] += graph.ops[name][0]
    pushes = sum(seconds for seconds, _ in graph.sends.values())
    return max(
        bounds(graph).lower,
        graph.communication + min(depending, default=0.0),
        graph.computation + max(0.0, min(heads, default=0.0) - free),
        pushes + min(_ends(graph, [n for _, n in graph.sends.values()]), default=0.0),
        _longest_path(graph),
    )


def gap(graph: Graph, makespan: float) -> float:
    """By which share a makespan exceeds `lower_bound`: at most this can be gained.

    Args:
        graph: the worker's graph.
        makespan: seconds.

    Returns:
        0.0 where the order is provably optimal.

    Raises:
        ValueError: a makespan below the bound, which no schedule has.

    Example:
        >>> gap(Graph(recvs={"w": 2.0}, ops={"dot": (2.0, ["w"])}), 5.0)
        0.25
    """
    least = lower_bound(graph)
    seconds = check_seconds("makespan", makespan)
    if seconds < least * (1 - 1e-9):
        raise ValueError(
            f"makespan must be at least the bound {least} s, got {makespan}: is it of "
            "another graph?"
        )
    return seconds / least - 1.0 if least else 0.0


def _path_ends(graph: Graph) -> dict[str, float]:
    """When each recv and operation could end at the earliest, alone in the world."""
    end = dict(graph.recvs)
    for name, (seconds, needs) in graph.ops.items():
        end[name] = seconds + max((end[need] for need in needs), default=0.0)
    return end


def _ends(graph: Graph, groups: list) -> list[float]:
    end = _path_ends(graph)
    return [max((end[need] for need in needs), default=0.0) for needs in groups]


def _longest_path(graph: Graph) -> float:
    sends = list(graph.sends.values())
    starts = _ends(graph, [needs for _, needs in sends])
    pushed = [start + t for start, (t, _) in zip(starts, sends, strict=True)]
    return max([*_path_ends(graph).values(), *pushed], default=0.0)
