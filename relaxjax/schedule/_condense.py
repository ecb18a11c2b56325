"""A smaller graph for large simulations: operations that always run in a row as one.

Two operations that follow each other in program order and depend on the same recvs
become one, unless the first is what a send waits for. Sets of recvs, sums of times and
the makespan formula of graphs without sends stay as they are.

Cost: O(V + E).
"""

from relaxjax.schedule._graph import Graph


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
