"""TAC: an order from the graph and its times.

Source: Hashemi et al., "TicTac", MLSys 2019, Algorithm 3 and equation 6; the strict
part of equation 6 is S. M. Johnson's rule (1954) for two-machine flow shops.

    while R:  update P, M, M+ of all r in R (Algorithm 1)
              r* = min of R under the comparator;  R = R - {r*}

    A before B  iff  min(P_B, M_A) < min(P_A, M_B)                      (6)
    on a tie in (6), the smaller M+ goes first

The ties of (6) are not transitive: with (P, M), (3, 3) ~ (2, 2) ~ (2, 3), and yet
(3, 3) is strictly before (2, 3). The released program sorts with this comparator and
takes the first, which need not be a minimum. Here R is scanned once, by M+, then by
`tie_ranks`, and a recv displaces the one held if (6) puts it strictly before. The
strict part of (6) is transitive, so no recv is strictly before the one held at the
end: which makes the order Johnson-optimal for independent transfers, and independent
of the order of the input. No B is strictly before A iff

    (M_A <= P_A  or  P_A = max P)   and   M_A <= min {M_B : M_B < P_B}

so that M+ is worked out only where more than one recv has that property.

Cost: O(n C log C) for n recvs and C distinct sets op.dep (C <= V).
"""

import math
from collections.abc import Callable
from functools import cmp_to_key

from relaxjax.schedule._graph import Graph
from relaxjax.schedule._properties import Properties, properties, ticks, tie_ranks

Classes = dict[int, tuple[int, int]]
"""By the set op.dep & R of two recvs or more, as bits: (sum of Time(op), op.M)."""


def tac(graph: Graph, *, select: str = "argmin") -> list[str]:
    """Recv names in TAC's order.

    Args:
        graph: the worker's graph.
        select: how the minimum is found: "argmin", the rule above, or
            "reference_sort", the first of the released program's sort, which can miss
            the minimum and depends on the order of the input. It is slow: a reference.

    Returns:
        Every recv once, the first to be sent first.

    Raises:
        ValueError: an unknown `select`.

    Example:
        >>> graph = Graph(
        ...     recvs={"A": 3, "B": 1, "C": 5},
        ...     ops={"a": (2, ["A"]), "b": (4, ["B"]), "c": (4, ["C"])},
        ... )
        >>> tac(graph)
        ['B', 'C', 'A']
    """
    if select not in _SELECT:
        raise ValueError(f"select must be one of {sorted(_SELECT)}, got {select!r}")
    return _SELECT[select](graph)


def _by_argmin(graph: Graph) -> list[str]:
    names = list(graph.recvs)
    place = tie_ranks(graph)
    M, P, classes = _first_properties(graph)
    R = set(range(len(names)))
    order = []
    while R:
        chosen = _minimum(R, P, M, classes, place)
        classes = _without(chosen, classes, P, M)
        R.remove(chosen)
        order.append(names[chosen])
    return order


def _minimum(
    R: set[int], P: list[int], M: list[int], classes: Classes, place: list[int]
) -> int:
    """The recv held at the end of one scan of R by M+, then `place`."""
    undominated = _undominated(R, P, M)
    if len(undominated) == 1:
        return undominated[0]
    M_plus = _impending(R, classes)
    held, *others = sorted(R, key=lambda r: (M_plus[r], place[r]))
    for r in others:
        if min(P[held], M[r]) < min(P[r], M[held]):  # (6): r strictly before
            held = r
    return held


def _first_properties(graph: Graph) -> tuple[list[int], list[int], Classes]:
    """M and P of each recv, and the classes of operations, all outstanding."""
    n = len(graph.recvs)
    times = ticks([*graph.recvs.values(), *(t for t, _ in graph.ops.values())])
    M, P = times[:n], [0] * n
    classes: Classes = {}
    for mask, time in zip(graph.masks.values(), times[n:], strict=True):
        if mask.bit_count() == 1:
            P[mask.bit_length() - 1] += time
        elif mask in classes:
            classes[mask] = (classes[mask][0] + time, classes[mask][1])
        elif mask:
            classes[mask] = (time, sum(M[i] for i in range(n) if mask >> i & 1))
    return M, P, classes


def _undominated(R: set[int], P: list[int], M: list[int]) -> list[int]:
    """The recvs that none other strictly precedes under (6)."""
    most = max(P[r] for r in R)
    least = min((M[r] for r in R if M[r] < P[r]), default=None)
    return [
        r
        for r in R
        if (M[r] <= P[r] or P[r] == most) and (least is None or M[r] <= least)
    ]


def _impending(R: set[int], classes: Classes) -> dict[int, float]:
    """M+ of each recv: the cheapest class that names it decides."""
    M_plus: dict[int, float] = dict.fromkeys(R, math.inf)
    unseen = sum(1 << r for r in R)
    for mask, (_, communication) in sorted(classes.items(), key=lambda c: c[1][1]):
        fresh = mask & unseen
        unseen &= ~mask
        while fresh:
            lowest = fresh & -fresh
            M_plus[lowest.bit_length() - 1] = communication
            fresh ^= lowest
        if not unseen:
            break
    return M_plus


def _without(gone: int, classes: Classes, P: list[int], M: list[int]) -> Classes:
    """The classes once recv `gone` has arrived; adds to P what hangs on one alone."""
    bit = 1 << gone
    left: Classes = {}
    for mask, (time, communication) in classes.items():
        if mask & bit:
            mask ^= bit
            communication -= M[gone]
            if not mask & (mask - 1):
                P[mask.bit_length() - 1] += time
                continue
        if mask in left:
            time += left[mask][0]
        left[mask] = (time, communication)
    return left


def _by_reference_sort(graph: Graph) -> list[str]:
    order: list[str] = []
    outstanding = list(graph.recvs)
    while outstanding:
        update = properties(graph, outstanding=outstanding)
        key = cmp_to_key(_compare)
        ranked = sorted(update.items(), key=lambda item: key(item[1]))
        order.append(ranked[0][0])
        outstanding.remove(order[-1])
    return order


def _compare(first: Properties, second: Properties) -> int:
    """Negative if `first` goes before `second`: (6), then M+."""
    a, b = min(second.P, first.M), min(first.P, second.M)
    if a == b:
        a, b = first.M_plus, second.M_plus
    return (a > b) - (a < b)


_SELECT: dict[str, Callable[[Graph], list[str]]] = {
    "argmin": _by_argmin,
    "reference_sort": _by_reference_sort,
}
