"""Insertion local search over orders, many at a time.

One recv is moved to another place. With k* the place that attains

    max_k [A(R_k) - W(R_{k-1})]

only a move across k* can lower that maximum (see `_makespan`), so only those are
tried, all of them at once, and the best is taken until no move helps. Then a few seeded
random moves are made and the search goes on from there.

Cost: `evaluations` orders at most, O(V) array operations for thousands of them.
"""

from collections.abc import Sequence

import numpy as np

from relaxjax.schedule.graphs._check_graph import check_order
from relaxjax.schedule.graphs._graph import Graph
from relaxjax.schedule.orders._bounds import lower_bound
from relaxjax.schedule.orders._makespan import PreparedGraph, prepare

_KICKS = 3
_BATCH = 4096


def local_search(
    graph: Graph, starts: Sequence[Sequence[str]], *, evaluations: int = 20_000
) -> list[str]:
    """The best order found from some first orders.

    Args:
      graph: the worker's graph; its sends are ignored.
      starts: orders to start from; the result is no worse than the first of them.
      evaluations: the maximum number of orders that are tried.

    Returns:
      Every recv once, the first to be sent first.

    Raises:
      ValueError: no start, or a start that misses, repeats or invents a recv.

    Example:
      >>> graph = Graph(
      ...     recvs={"A": 3, "B": 1},
      ...     ops={"a": (1, ["A"]), "b": (4, ["B"])},
      ... )
      >>> local_search(graph, [["A", "B"]])
      ['B', 'A']
    """
    if not starts:
        raise ValueError("starts must hold at least one order, got none")
    starts = [check_order(graph.recvs, start) for start in starts]
    prepared = prepare(graph)
    names = list(graph.recvs)
    index = {name: i for i, name in enumerate(names)}
    queue = [np.array([index[name] for name in start]) for start in starts]
    incumbent = queue[0]
    champion = prepared.makespans(incumbent[None])[0]
    least = lower_bound(graph)
    rng = np.random.default_rng(0)
    left = evaluations
    while left > 0 and champion > least:
        order = queue.pop(0) if queue else _kicked(incumbent, rng)
        order, seconds, used = _descend(prepared, order, left)
        left -= used
        if seconds <= champion:
            incumbent, champion = order, seconds
    return [names[i] for i in incumbent]


def _descend(
    graph: PreparedGraph, order: np.ndarray, evaluations: int
) -> tuple[np.ndarray, float, int]:
    """The best insertion again and again, until no insertion helps."""
    seconds, used = float(graph.makespans(order[None])[0]), 1
    while used < evaluations:
        bottleneck = int(graph.prefix_costs(order[None])[0].argmax())
        moves = _moves(order, bottleneck)[: evaluations - used]
        if not len(moves):
            break
        batches = [moves[i : i + _BATCH] for i in range(0, len(moves), _BATCH)]
        trials = np.concatenate([graph.makespans(batch) for batch in batches])
        used += len(moves)
        if trials.min() >= seconds:
            break
        order, seconds = moves[trials.argmin()], float(trials.min())
    return order, seconds, used


def _moves(order: np.ndarray, bottleneck: int) -> np.ndarray:
    """Every order in which one recv has moved across the bottleneck: int[B, n]."""
    n = len(order)
    pairs = [
        pair
        for early in range(bottleneck + 1)
        for late in range(bottleneck, n)
        if early != late
        for pair in ((early, late), (late, early))
    ]
    return np.array([_inserted(order, i, j) for i, j in pairs]).reshape(-1, n)


def _inserted(order: np.ndarray, source: int, target: int) -> np.ndarray:
    without = np.delete(order, source)
    return np.insert(without, target, order[source])


def _kicked(order: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    for _ in range(_KICKS):
        source, target = rng.integers(len(order), size=2)
        order = _inserted(order, int(source), int(target))
    return order
