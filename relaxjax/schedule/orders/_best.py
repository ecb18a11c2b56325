"""An order at least as good as TAC's: exact where that is cheap, else improved.

TAC looks one recv ahead. On graphs that are not chains it can be far from optimal
(5 % on average and 35 % at worst on small random graphs). Here:

    few recvs                dynamic programming, exact (`optimum`)
    series-parallel graphs   segments merged by Johnson's rule, exact
    all others               insertion local search from TAC's order
    graphs with pushes       the same on the graph without them, then insertions
                             evaluated with them

Cost: `evaluations` orders at most, O(V) each.
"""

import itertools
from collections.abc import Callable, Iterator

from relaxjax._core.foreign._fields import check_count
from relaxjax.schedule.graphs._graph import Graph
from relaxjax.schedule.orders._bounds import lower_bound
from relaxjax.schedule.orders._condense import canonical
from relaxjax.schedule.orders._local_search import local_search
from relaxjax.schedule.orders._makespan import makespan
from relaxjax.schedule.orders._optimum import optimum
from relaxjax.schedule.orders._series_parallel import series_parallel_order
from relaxjax.schedule.orders._tictac import tac, tic

_EXACT = 14
"""The most recvs for which `optimum` is cheap."""
_EVALUATIONS = 20_000
_LEAST_CALLS = 100
_OPERATIONS = 2_000_000


def best(
    graph: Graph,
    *,
    objective: Callable[[list[str]], float] | None = None,
    evaluations: int | None = None,
) -> list[str]:
    """Recv names in an order never worse than TAC's.

    Args:
      graph: the worker's graph.
      objective: seconds of an order, to be minimized; by default
        `makespan(graph, order)`. Pass a simulation for several servers, or for anything
        else that the graph does not say.
      evaluations: the most orders that the local search tries; by default 20 000. With
        sends or an objective, where orders are tried one by one, as many as take some
        seconds: 2 000 000 operations, and at least 100 orders.

    Returns:
      Every recv once, the first to be sent first; the same however the recvs and
      operations of the graph were listed.

    Raises:
      TypeError: `evaluations` is not a whole number.
      ValueError: `evaluations` below 1.

    Example:
      >>> graph = Graph(
      ...     recvs={"A": 3, "B": 1, "C": 5},
      ...     ops={"a": (2, ["A"]), "b": (4, ["B"]), "c": (4, ["C"])},
      ... )
      >>> best(graph)
      ['B', 'C', 'A']
    """
    if evaluations is not None:
        check_count("evaluations", evaluations)
    graph = canonical(graph)
    starts = [tac(graph), _search(graph, evaluations or _EVALUATIONS)]
    if objective is None and not graph.sends:
        return min(starts, key=lambda order: makespan(graph, order))
    least = 0.0 if objective else lower_bound(graph)
    seconds = objective or (lambda order: makespan(graph, order))
    calls = evaluations or max(_LEAST_CALLS, _OPERATIONS // max(len(graph.ops), 1))
    return _improve(starts, seconds, calls, least)


def _search(graph: Graph, evaluations: int) -> list[str]:
    """The best known order of the graph without its sends."""
    pulls = Graph(graph.recvs, graph.ops) if graph.sends else graph
    few = len(pulls.recvs) <= _EXACT
    exact = optimum(pulls) if few else series_parallel_order(pulls)
    if exact is not None:
        return exact
    return local_search(pulls, [tac(pulls), tic(pulls)], evaluations=evaluations)


def _improve(
    starts: list[list[str]],
    objective: Callable[[list[str]], float],
    evaluations: int,
    least: float,
) -> list[str]:
    """First-improvement insertion search, one call of the objective for each order."""
    trials = [(objective(order), order) for order in starts[:evaluations]]
    seconds, order = min(trials, key=lambda trial: trial[0])
    left = evaluations - len(trials)
    while left > 0 and seconds > least:
        for candidate in itertools.islice(_neighbors(order), left):
            left -= 1
            trial = objective(candidate)
            if trial < seconds:
                order, seconds = candidate, trial
                break
        else:
            break
    return order


def _neighbors(order: list[str]) -> Iterator[list[str]]:
    """All orders one insertion away, near insertions first."""
    for distance in range(1, len(order)):
        for i in range(len(order) - distance):
            for source, target in ((i, i + distance), (i + distance, i)):
                moved = order[:source] + order[source + 1 :]
                yield [*moved[:target], order[source], *moved[target:]]
