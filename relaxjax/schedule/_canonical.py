"""One graph in one spelling, however its recvs and operations were listed.

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
