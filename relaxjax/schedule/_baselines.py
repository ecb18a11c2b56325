"""Orders to compare with: random, first in first out, by layer, smallest first.

Cost: O(n log n).
"""

import random

from relaxjax._core._tree import natural_key
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._properties import tie_ranks


def random_order(graph: Graph, *, seed: int = 0) -> list[str]:
    """A uniformly random order: what a system without an order has.

    Args:
        graph: the worker's graph.
        seed: the same seed, the same order.

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
    place = dict(zip(graph.recvs, tie_ranks(graph), strict=True))
    return sorted(graph.recvs, key=place.__getitem__)


def smallest_first(graph: Graph) -> list[str]:
    """By rising transfer time; equal times by depth of first use.

    Args:
        graph: the worker's graph.

    Example:
        >>> smallest_first(Graph(recvs={"a": 2, "b": 1}, ops={}))
        ['b', 'a']
    """
    place = dict(zip(graph.recvs, tie_ranks(graph), strict=True))
    return sorted(graph.recvs, key=lambda name: (graph.recvs[name], place[name]))
