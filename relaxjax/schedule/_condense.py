"""A smaller graph for large simulations: operations that always run in a row as one.

Two operations that follow each other in program order and depend on the same recvs
become one, unless the first is what a send waits for. Sets of recvs, sums of times and
the makespan formula of graphs without sends stay as they are.

Cost: O(V + E).

One graph in one spelling, however its recvs and operations were listed.

Searches break ties by position. Before they start, recvs are put in the order of
`tie_ranks`, and operations by their depth (most operations on a path before them),
then by name, so that an order is a function of the graph and not of its spelling. With
sends the order of operations is part of the graph (which of two ready ones runs
first), and stays.

Cost: O((V + E) log V).
"""

from relaxjax._core._tree import natural_key
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._properties import tie_ranks


def canonical(graph: Graph) -> Graph:
    """The same graph, its recvs and operations in an order of their own.

    Args:
        graph: the worker's graph.

    Example:
        >>> graph = Graph(recvs={"b": 1.0, "a": 1.0}, ops={"o": (1.0, ["b", "a"])})
        >>> list(canonical(graph).recvs)
        ['a', 'b']
    """
    place = dict(zip(graph.recvs, tie_ranks(graph), strict=True))
    ops = list(graph.ops)
    if not graph.sends:
        depth: dict[str, int] = {}
        for name, (_, needs) in graph.ops.items():
            depth[name] = max((depth[n] + 1 for n in needs if n in depth), default=0)
        ops.sort(key=lambda name: (depth[name], natural_key(name)))
    return Graph(
        recvs={
            name: graph.recvs[name] for name in sorted(place, key=place.__getitem__)
        },
        ops={name: graph.ops[name] for name in ops},
        sends=graph.sends,
        nbytes=graph.nbytes,
        attributed=graph.attributed,
    )


def condensed(graph: Graph) -> Graph:
    """The same graph with runs of operations merged.

    Args:
        graph: the worker's graph.

    Returns:
        A graph with as many recvs and sends, and as many seconds.

    Example:
        >>> graph = Graph(
        ...     recvs={"w": 1.0},
        ...     ops={"dot": (1.0, ["w"]), "tanh": (5.0, ["dot"])},
        ... )
        >>> condensed(graph).ops
        {'dot': (6.0, ('w',))}
    """
    pushed = {need for _, needs in graph.sends.values() for need in needs}
    leader: dict[str, str] = {}
    seconds: dict[str, float] = {}
    needs: dict[str, dict[str, None]] = {}
    current, closed = "", True
    for name, (time, before) in graph.ops.items():
        if closed or graph.masks[current] != graph.masks[name]:
            current = name
            seconds[current], needs[current] = 0.0, {}
        leader[name] = current
        seconds[current] += time
        outside = (leader.get(need, need) for need in before)
        needs[current].update((need, None) for need in outside if need != current)
        closed = name in pushed
    return Graph(
        recvs=graph.recvs,
        ops={name: (seconds[name], tuple(needs[name])) for name in seconds},
        sends={
            name: (time, tuple(dict.fromkeys(leader.get(n, n) for n in before)))
            for name, (time, before) in graph.sends.items()
        },
        nbytes=graph.nbytes,
        attributed=graph.attributed,
    )
