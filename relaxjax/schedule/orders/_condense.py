"""The same graph in another form: in one spelling, or with fewer operations.

Cost: O((V + E) log V).
"""

from dataclasses import replace

from relaxjax._core._tree import natural_key
from relaxjax.schedule.graphs._graph import Graph
from relaxjax.schedule.orders._baselines import depths, layer_order


def canonical(graph: Graph) -> Graph:
    """The same graph, however its recvs and operations were listed.

    Searches break ties by position. Before they start, recvs are put in `layer_order`,
    and operations in the order of their depth, then of their names, so that what is
    found is a function of the graph and not of its spelling. With sends the order of
    operations is part of the graph (which of two ready ones runs first), and stays.

    Example:
      >>> graph = Graph(recvs={"b": 1.0, "a": 1.0}, ops={"o": (1.0, ["b", "a"])})
      >>> list(canonical(graph).recvs)
      ['a', 'b']
    """
    ops = list(graph.ops)
    if not graph.sends:
        depth = depths(graph)
        ops.sort(key=lambda name: (depth[name], natural_key(name)))
    return replace(
        graph,
        recvs={name: graph.recvs[name] for name in layer_order(graph)},
        ops={name: graph.ops[name] for name in ops},
    )


def condensed(graph: Graph) -> Graph:
    """A smaller graph for large simulations: operations that run in a row as one.

    Two operations that follow each other in program order and depend on the same recvs
    become one, unless a send waits for the first. Sets of recvs, sums of times and, for
    a graph without sends, makespans stay as they are.

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
    return replace(
        graph,
        ops={name: (seconds[name], tuple(needs[name])) for name in seconds},
        sends={
            name: (time, tuple(dict.fromkeys(leader.get(n, n) for n in before)))
            for name, (time, before) in graph.sends.items()
        },
    )
