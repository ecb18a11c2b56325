"""An order at least as good as TAC's: exact where that is cheap, else improved.

TAC looks one recv ahead. On graphs that are not chains it can be far from optimal
(5 % on average and 35 % at worst on small random graphs). Here:

    few recvs                dynamic programming, exact (`optimum`)
    series-parallel graphs   segments merged by Johnson's rule, exact
    all others               insertion local search from TAC's order

The local search moves one recv to another place. With k* the place that attains
max_k [A(R_k) - W(R_{k-1})], only a move across k* can lower it, so only those are
tried. At a local optimum a few seeded random moves are made and the search goes on.

Cost: `evaluations` orders at most, O(V) each.
"""

from collections.abc import Callable, Iterator

import numpy as np

from relaxjax.schedule._bounds import lower_bound
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._makespan import Plan, makespan, makespans, prefix_costs, prepare
from relaxjax.schedule._optimum import optimum
from relaxjax.schedule._series_parallel import series_parallel_order
from relaxjax.schedule._tac import tac
from relaxjax.schedule._tic import tic

_EXACT = 14
_KICKS = 3
_BATCH = 4096


def best(
    graph: Graph,
    *,
    objective: Callable[[list[str]], float] | None = None,
    evaluations: int = 20_000,
) -> list[str]:
    """Recv names in an order never worse than TAC's.

    Args:
        graph: the worker's graph.
        objective: seconds of an order, to be minimized; by default
            `makespan(graph, order)`. Give a simulation for several servers, or for
            whatever else the graph does not say.
        evaluations: the most orders that the local search tries.

    Returns:
        Every recv once, the first to be sent first.

    Raises:
        ValueError: `evaluations` below 1.

    Example:
        >>> graph = Graph(
        ...     recvs={"A": 3, "B": 1, "C": 5},
        ...     ops={"a": (2, ["A"]), "b": (4, ["B"]), "c": (4, ["C"])},
        ... )
        >>> best(graph)
        ['B', 'C', 'A']
    """
    if evaluations < 1:
        raise ValueError(f"evaluations must be at least 1, got {evaluations}")
    start = tac(graph)
    if objective is not None or graph.sends:
        seconds = objective or (lambda order: makespan(graph, order))
        return _improve_by_calls(start, seconds, evaluations)
    found = _exact(graph) or _improve(graph, [start, tic(graph)], evaluations)
    return min(start, found, key=lambda order: makespan(graph, order))


def _exact(graph: Graph) -> list[str] | None:
    if len(graph.recvs) <= _EXACT:
        return optimum(graph)
    return series_parallel_order(graph)


def _improve(graph: Graph, starts: list[list[str]], evaluations: int) -> list[str]:
    """Insertion local search with restarts, many orders at a time."""
    plan = prepare(graph)
    index = {name: i for i, name in enumerate(graph.recvs)}
    names = list(graph.recvs)
    least = lower_bound(graph)
    rng = np.random.default_rng(0)
    incumbent = np.array([index[name] for name in starts[0]])
    champion = makespans(plan, incumbent[None])[0]
    current = [np.array([index[name] for name in start]) for start in starts]
    left = evaluations
    while left > 0 and champion > least:
        order = current.pop(0) if current else _kicked(incumbent, rng)
        order, seconds, used = _descend(plan, order, left)
        left -= used
        if seconds <= champion:
            incumbent, champion = order, seconds
    return [names[i] for i in incumbent]


def _descend(
    plan: Plan, order: np.ndarray, evaluations: int
) -> tuple[np.ndarray, float, int]:
    """Best insertion after best insertion, until none helps."""
    seconds, used = float(makespans(plan, order[None])[0]), 1
    while used < evaluations:
        bottleneck = int(prefix_costs(plan, order[None])[0].argmax())
        moves = _moves(order, bottleneck)[: evaluations - used]
        if not len(moves):
            break
        trials = np.concatenate(
            [
                makespans(plan, moves[i : i + _BATCH])
                for i in range(0, len(moves), _BATCH)
            ]
        )
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


def _improve_by_calls(
    order: list[str], objective: Callable[[list[str]], float], evaluations: int
) -> list[str]:
    """First-improvement insertion search, one call of the objective for each order."""
    seconds, left = objective(order), evaluations - 1
    improved = True
    while improved and left > 0:
        improved = False
        for candidate in _neighbors(order):
            if left <= 0:
                break
            left -= 1
            trial = objective(candidate)
            if trial < seconds:
                order, seconds, improved = candidate, trial, True
                break
    return order


def _neighbors(order: list[str]) -> Iterator[list[str]]:
    """All insertions, near ones first."""
    for distance in range(1, len(order)):
        for i in range(len(order) - distance):
            for source, target in ((i, i + distance), (i + distance, i)):
                moved = order[:source] + order[source + 1 :]
                yield [*moved[:target], order[source], *moved[target:]]
