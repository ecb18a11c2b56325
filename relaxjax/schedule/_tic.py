"""TIC: an order from the graph alone.

Source: Hashemi et al., "TicTac", MLSys 2019, Algorithm 2.

Under the *general oracle* Time(recv) = 1 and Time(op) = 0, M+ of a recv is the
smallest number (> 1) of parameters that some operation needing it needs in all:

    priority(r) = r.M+

The released code numbers a recv by how many recvs have a strictly smaller M+, so that
recvs which tie share their number. A recv which no operation needs together with
another has M+ = inf and comes last, even if its operation could start at once: that
is the published rule.

Cost: O(V log V + n) for V operations and n recvs; times are not used.
"""

import math

from relaxjax.schedule._graph import Graph
from relaxjax.schedule._properties import tie_ranks


def priorities_tic(graph: Graph) -> dict[str, int]:
    """The number that TIC gives to each recv: the lower, the earlier.

    Args:
        graph: the worker's graph; its times play no part.

    Returns:
        For each recv how many recvs have a strictly smaller M+; ties share a number.

    Example:
        A chain of four layers ties its first two parameters:

        >>> graph = Graph(
        ...     recvs={"r1": 1, "r2": 1, "r3": 1},
        ...     ops={
        ...         "o1": (1, ["r1"]),
        ...         "o2": (1, ["o1", "r2"]),
        ...         "o3": (1, ["o2", "r3"]),
        ...     },
        ... )
        >>> priorities_tic(graph)
        {'r1': 0, 'r2': 0, 'r3': 2}
    """
    impending = _impending_counts(graph)
    ordered = sorted(impending)
    smaller: dict[float, int] = {}
    for place, count in enumerate(ordered):
        smaller.setdefault(count, place)
    return {n: smaller[m] for n, m in zip(graph.recvs, impending, strict=True)}


def tic(graph: Graph) -> list[str]:
    """Recv names in TIC's order.

    Ties go to the recv that is first used less deep in the graph, then by name.

    Args:
        graph: the worker's graph; its times play no part.

    Returns:
        Every recv once, the first to be sent first.

    Example:
        >>> graph = Graph(
        ...     recvs={"r2": 1, "r1": 1},
        ...     ops={"o1": (1, ["r1"]), "o2": (1, ["o1", "r2"])},
        ... )
        >>> tic(graph)
        ['r1', 'r2']
    """
    number = priorities_tic(graph)
    place = dict(zip(graph.recvs, tie_ranks(graph), strict=True))
    return sorted(graph.recvs, key=lambda name: (number[name], place[name]))


def _impending_counts(graph: Graph) -> list[float]:
    """M+ under the general oracle, in the order of `graph.recvs`."""
    impending = [math.inf] * len(graph.recvs)
    unseen = (1 << len(graph.recvs)) - 1
    # Fewest parameters first: the first operation that names a recv decides its M+.
    for mask in sorted(set(graph.masks.values()), key=int.bit_count):
        fresh = mask & unseen
        if not fresh or mask.bit_count() < 2:
            continue
        unseen &= ~mask
        while fresh:
            lowest = fresh & -fresh
            impending[lowest.bit_length() - 1] = mask.bit_count()
            fresh ^= lowest
    return impending
