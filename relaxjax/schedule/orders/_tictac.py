"""TIC, an order from the graph alone, and TAC, an order from the graph and its times.

Source: Hashemi et al., "TicTac", MLSys 2019, Algorithms 2 and 3 and equation 6; the
strict part of equation 6 is S. M. Johnson's rule (1954) for two-machine flow shops.

TIC. Under the *general oracle* Time(recv) = 1 and Time(op) = 0, M+ of a recv is the
smallest number (> 1) of parameters that some operation needing it needs in all:

    priority(r) = r.M+

The released code numbers a recv by how many recvs have a strictly smaller M+, so that
recvs that tie share their number. A recv that no operation needs together with another
has M+ = inf and comes last, even if its operation could start at once: that is the
published rule.

TAC.

    while R:  update P, M, M+ of all r in R (Algorithm 1)
              r* = min of R under the comparator;  R = R - {r*}

    A before B  iff  min(P_B, M_A) < min(P_A, M_B)                      (6)
    on a tie in (6), the smaller M+ goes first

The ties of (6) are not transitive: with (P, M), (3, 3) ~ (2, 2) ~ (2, 3), and yet
(3, 3) is strictly before (2, 3). The released program sorts with this comparator and
takes the first, which need not be a minimum. Here R is scanned once, by M+, then by
`layer_order`, and a recv displaces the current choice if (6) puts it strictly before.
The strict part of (6) is transitive, so no recv is strictly before the final choice:
the order is Johnson-optimal for independent transfers, and does not depend on the order
of the input. No B is strictly before A iff

    (M_A <= P_A  or  P_A = max P)   and   M_A <= min {M_B : M_B < P_B}

so that M+ is worked out only where more than one recv has that property.

Cost: TIC O(V log V + n); TAC O(n C log C), for V operations, n recvs and C distinct
sets op.dep (C <= V).
"""

import math
from collections.abc import Iterable
from functools import cmp_to_key

from relaxjax.schedule.graphs._graph import Graph, bits
from relaxjax.schedule.orders._baselines import fifo, layer_order
from relaxjax.schedule.orders._properties import exact_times

Classes = dict[int, tuple[int, int]]
"""By the set op.dep & R of two recvs or more, as bits: (sum of Time(op), op.M)."""


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
    return sorted(layer_order(graph), key=priorities_tic(graph).__getitem__)


def priorities_tic(graph: Graph) -> dict[str, int]:
    """The number that TIC gives to each recv: the lower, the earlier.

    Args:
      graph: the worker's graph; its times play no part.

    Returns:
      For each recv, the number of recvs with a strictly smaller M+; ties share a
      number.

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
    sets = {mask for mask in graph.masks.values() if mask.bit_count() > 1}
    M_plus = _impending(range(len(graph.recvs)), ((m.bit_count(), m) for m in sets))
    smaller: dict[float, int] = {}
    for place, count in enumerate(sorted(M_plus.values())):
        smaller.setdefault(count, place)
    return {name: smaller[M_plus[r]] for r, name in enumerate(graph.recvs)}


def tac(graph: Graph, *, select: str = "argmin") -> list[str]:
    """Recv names in TAC's order.

    Args:
      graph: the worker's graph.
      select: how the minimum is chosen: "argmin", the rule above, or "reference_sort",
        the first of the released program's sort, which can miss the minimum and depends
        on the order of the input.

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
    scan, choose = _SELECT[select]
    names = list(graph.recvs)
    index = {name: r for r, name in enumerate(names)}
    M, P, classes = _first_properties(graph)
    R = [index[name] for name in scan(graph)]
    order = []
    while R:
        chosen = choose(R, M, P, classes)
        classes = _without(chosen, classes, P, M)
        R.remove(chosen)
        order.append(names[chosen])
    return order


def _minimum(R: list[int], M: list[int], P: list[int], classes: Classes) -> int:
    """The recv chosen by one scan of R by M+, ties in the order of R."""
    undominated = _undominated(R, M, P)
    if len(undominated) == 1:
        return undominated[0]
    M_plus = _impending(R, ((op_M, mask) for mask, (_, op_M) in classes.items()))
    chosen, *others = sorted(R, key=M_plus.__getitem__)
    for r in others:
        if min(P[chosen], M[r]) < min(P[r], M[chosen]):  # (6): r strictly before
            chosen = r
    return chosen


def _first_sorted(R: list[int], M: list[int], P: list[int], classes: Classes) -> int:
    """The first of the released program's sort, which need not be a minimum."""
    M_plus = _impending(R, ((op_M, mask) for mask, (_, op_M) in classes.items()))

    def compare(A: int, B: int) -> int:
        difference = min(P[B], M[A]) - min(P[A], M[B])
        return difference or (M_plus[A] > M_plus[B]) - (M_plus[A] < M_plus[B])

    return sorted(R, key=cmp_to_key(compare))[0]


_SELECT = {
    "argmin": (layer_order, _minimum),
    "reference_sort": (fifo, _first_sorted),
}
"""How TAC chooses among R: the order in which R is scanned, and the choice."""


def _first_properties(graph: Graph) -> tuple[list[int], list[int], Classes]:
    """M and P of each recv, and the classes of operations, with all recvs in R."""
    M, freed = exact_times(graph)
    P = [0] * len(M)
    classes: Classes = {}
    for mask, time in freed.items():
        if mask.bit_count() == 1:
            P[mask.bit_length() - 1] = time
        elif mask:
            classes[mask] = (time, sum(M[r] for r in bits(mask)))
    return M, P, classes


def _undominated(R: list[int], M: list[int], P: list[int]) -> list[int]:
    """The recvs that no other strictly precedes under (6)."""
    most = max(P[r] for r in R)
    least = min((M[r] for r in R if M[r] < P[r]), default=None)
    return [
        r
        for r in R
        if (M[r] <= P[r] or P[r] == most) and (least is None or M[r] <= least)
    ]


def _impending(R: Iterable[int], sets: Iterable[tuple[int, int]]) -> dict[int, float]:
    """M+ of each recv, from (op.M, op.dep): the cheapest set that has it decides."""
    M_plus: dict[int, float] = dict.fromkeys(R, math.inf)
    unseen = sum(1 << r for r in M_plus)
    for op_M, mask in sorted(sets):
        for r in bits(mask & unseen):
            M_plus[r] = op_M
        unseen &= ~mask
        if not unseen:
            break
    return M_plus


def _without(gone: int, classes: Classes, P: list[int], M: list[int]) -> Classes:
    """The classes once recv `gone` has arrived; adds to P what waits for one alone."""
    bit = 1 << gone
    remaining: Classes = {}
    for mask, (time, op_M) in classes.items():
        if mask & bit:
            mask ^= bit
            op_M -= M[gone]
            if not mask & (mask - 1):
                P[mask.bit_length() - 1] += time
                continue
        if mask in remaining:
            time += remaining[mask][0]
        remaining[mask] = (time, op_M)
    return remaining
