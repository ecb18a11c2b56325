"""The optimal order, exactly, by dynamic programming over sets of recvs.

One channel and one computing unit make the problem *sequencing to minimize the
maximum cumulative cost* on the graph (Abdel-Wahab and Kameda, Operations Research 26,
1978): a recv costs its time, an operation gives its time back. It is NP-complete for
general precedence. With A(S) the time of the recvs in S and W(S) the computation that
they set free,

    f(S) = min over r in S of  max( f(S - r),  A(S) - W(S - r) ),     f({}) = 0
    optimum = sum P + f(all)

Cost: O(2^n n) time, O(2^n) memory: at most 20 recvs (about 40 MB).
"""

import numpy as np

from relaxjax.schedule.graphs._graph import Graph, bits
from relaxjax.schedule.orders._condense import canonical

LIMIT = 20
"""The most recvs that `optimum` accepts."""


def optimum(graph: Graph) -> list[str]:
    """An order whose makespan no other order beats (up to the rounding of sums).

    If there are several, the choice does not depend on how the graph was listed.

    Args:
      graph: the worker's graph, with at most 20 recvs and no sends.

    Returns:
      Every recv once, the first to be sent first.

    Raises:
      ValueError: too many recvs, or sends; use `best` for these.

    Example:
      >>> graph = Graph(
      ...     recvs={"A": 3, "B": 1},
      ...     ops={"a": (1, ["A"]), "b": (4, ["B"])},
      ... )
      >>> optimum(graph)
      ['B', 'A']
    """
    n = len(graph.recvs)
    if n > LIMIT:
        raise ValueError(
            f"optimum takes time 2**n: at most {LIMIT} recvs, but the graph has {n}; "
            "use best(graph)"
        )
    if graph.sends:
        raise ValueError(
            "optimum handles recvs and operations only, but the graph has "
            f"{len(graph.sends)} sends; use best(graph)"
        )
    graph = canonical(graph)
    M = np.array([*graph.recvs.values()])
    A, W = _set_sums(M), _enabled(graph)
    f = _fill(A, W, n)
    names = list(graph.recvs)
    S, order = (1 << n) - 1, []
    while S:
        options = list(bits(S))
        costs = [max(f[S ^ 1 << r], A[S] - W[S ^ 1 << r]) for r in options]
        last = options[int(np.argmin(costs))]
        order.append(names[last])
        S ^= 1 << last
    return order[::-1]


def _set_sums(times: np.ndarray) -> np.ndarray:
    """A(S) for all 2^n sets S, as bits."""
    sums = np.zeros(1)
    for time in times:
        sums = np.concatenate([sums, sums + time])
    return sums


def _enabled(graph: Graph) -> np.ndarray:
    """W(S) for all sets S: the operations whose op.dep lies in S (a subset sum)."""
    n = len(graph.recvs)
    W = np.zeros(1 << n)
    for name, mask in graph.masks.items():
        W[mask] += graph.ops[name][0]
    for i in range(n):
        halves = W.reshape(-1, 2, 1 << i)
        halves[:, 1] += halves[:, 0]
    return W


def _fill(A: np.ndarray, W: np.ndarray, n: int) -> np.ndarray:
    """f(S) for all sets S, by rising size of the set."""
    f = np.full(1 << n, np.inf)
    f[0] = 0.0
    sets = np.arange(1 << n)
    size = np.bitwise_count(sets)
    for k in range(1, n + 1):
        level = sets[size == k]
        for r in range(n):
            S = level[level >> r & 1 == 1]
            without = S ^ (1 << r)
            f[S] = np.minimum(f[S], np.maximum(f[without], A[S] - W[without]))
    return f
