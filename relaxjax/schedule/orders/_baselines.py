"""Orders to compare with: random, first in first out, by layer, smallest first.

`layer_order` also breaks the ties of TIC and TAC.

Cost: O(V + E + n log n).
"""

import random

from relaxjax._core._tree import natural_key
from relaxjax.schedule.graphs._graph import Graph


def random_order(graph: Graph, *, seed: int = 0) -> list[str]:
    """A uniformly random order: what a system that sets no order gets.

    Args:
      graph: the worker's graph.
      seed: the same seed gives the same order.

    Example:
      >>> sorted(random_order(Graph(recvs={"a": 1, "b": 1}, ops={})))
      ['a', 'b']
    """
    order = sorted(graph.recvs, key=natural_key)
    random.Random(seed).shuffle(order)
    return order


def fifo(graph: Graph) -> list[str]:
    """The order in which the graph lists its recvs: first in, first out.

    Args:
      graph: the worker's graph.

    Example:
      >>> fifo(Graph(recvs={"b": 1, "a": 1}, ops={}))
      ['b', 'a']
    """
    return list(graph.recvs)


def layer_order(graph: Graph) -> list[str]:
    """By depth of first use: the priorities of P3 and ByteScheduler.

    The depth of an operation is the number of operations on the longest path before it.
    Equal depths go by name, with numbers in names read as numbers (2 before 10). The
    order in which recvs and operations are listed plays no part.

    Source: Jayarajan et al., "Priority-based parameter propagation for distributed DNN
    training", MLSys 2019; Peng et al., "A generic communication scheduler for
    distributed DNN training acceleration", SOSP 2019.

    Args:
      graph: the worker's graph.

    Example:
      >>> graph = Graph(
      ...     recvs={"w2": 1, "w1": 1},
      ...     ops={"o1": (1, ["w1"]), "o2": (1, ["o1", "w2"])},
      ... )
      >>> layer_order(graph)
      ['w1', 'w2']
    """
    first = dict.fromkeys(graph.recvs, len(graph.ops))
    for op, depth in depths(graph).items():
        for need in graph.ops[op][1]:
            if need in first:
                first[need] = min(first[need], depth)
    return sorted(graph.recvs, key=lambda name: (first[name], natural_key(name)))


def depths(graph: Graph) -> dict[str, int]:
    """For each operation, the operations on the longest path before it."""
    depth: dict[str, int] = {}
    for op, (_, needs) in graph.ops.items():
        depth[op] = max((depth[need] + 1 for need in needs if need in depth), default=0)
    return depth


def smallest_first(graph: Graph) -> list[str]:
    """By rising transfer time; equal times by depth of first use.

    Args:
      graph: the worker's graph.

    Example:
      >>> smallest_first(Graph(recvs={"a": 2, "b": 1}, ops={}))
      ['b', 'a']
    """
    return sorted(layer_order(graph), key=graph.recvs.__getitem__)
