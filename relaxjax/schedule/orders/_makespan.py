"""How long one worker's step takes when its recvs arrive in a given order.

Model: recvs back to back on one channel, one computing unit that is never idle while
an operation is ready, and a separate channel for the sends.

Without sends the makespan depends on the order of the recvs alone, not on which ready
operation runs first. With A(R_k) the time of the first k recvs and W(R_k) the
computation that they enable,

    makespan = sum P + max_k [A(R_k) - W(R_{k-1})]

With sends the computing unit takes the ready operation that comes first in the graph,
and each send leaves as soon as what it needs is done, first come first served.

Cost: O(V + E) for one order; O(V) array operations for a batch of orders.
"""

import heapq
import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from relaxjax.schedule.graphs._check_graph import check_order
from relaxjax.schedule.graphs._graph import Graph, latest


def makespan(graph: Graph, order: Iterable[str]) -> float:
    """Seconds from the first transfer to the end of the step.

    Args:
      graph: the worker's graph.
      order: every recv once, the first to arrive first.

    Raises:
      ValueError: the order misses, repeats or invents a recv.

    Example:
      >>> graph = Graph(
      ...     recvs={"r1": 2.0, "r2": 3.0},
      ...     ops={"o1": (4.0, ["r1"]), "o2": (1.0, ["o1", "r2"])},
      ... )
      >>> makespan(graph, ["r1", "r2"]), makespan(graph, ["r2", "r1"])
      (7.0, 10.0)
    """
    order = check_order(graph.recvs, order)
    if graph.sends:
        return _with_sends(graph, order)
    position: dict[str, int] = {name: k + 1 for k, name in enumerate(order)}
    enabled = [0.0] * (len(order) + 1)
    for name, (seconds, needs) in graph.ops.items():
        position[name] = max((position[need] for need in needs), default=0)
        enabled[position[name]] += seconds
    arrived, now = 0.0, enabled[0]
    for k, name in enumerate(order):
        arrived += graph.recvs[name]
        now = max(now, arrived) + enabled[k + 1]
    return now


def _with_sends(graph: Graph, order: list[str]) -> float:
    times = [graph.recvs[name] for name in order]
    done = dict(zip(order, itertools.accumulate(times), strict=True))
    done |= _run_ops(graph, done)
    ready = sorted((latest(done, needs), t) for t, needs in graph.sends.values())
    sent = 0.0
    for at, seconds in ready:
        sent = max(sent, at) + seconds
    return max(sent, max(done.values(), default=0.0))


def _run_ops(graph: Graph, arrival: dict[str, float]) -> dict[str, float]:
    """When each operation ends, on one unit that runs the graph's first ready one."""
    names = list(graph.ops)
    release = dict(arrival)
    for name, (_, needs) in graph.ops.items():
        release[name] = latest(release, needs)
    # An operation is released by its recvs. The other operations that it needs come
    # earlier in the graph and are released no later: the first one released is ready.
    coming = sorted(range(len(names)), key=lambda i: (release[names[i]], i))
    ready: list[int] = []
    done: dict[str, float] = {}
    now, k = 0.0, 0
    while len(done) < len(names):
        if not ready:
            now = max(now, release[names[coming[k]]])
        while k < len(coming) and release[names[coming[k]]] <= now:
            heapq.heappush(ready, coming[k])
            k += 1
        name = names[heapq.heappop(ready)]
        now += graph.ops[name][0]
        done[name] = now
    return done


class PreparedGraph(NamedTuple):
    """A graph without sends, prepared for many orders at once.

    Attributes:
      M: f64[n], seconds of each recv.
      P: f64[C], seconds of each class of operations (equal op.dep).
      free: seconds of operations that need no recv.
      needs: for each class, the recvs and the earlier classes whose last arrival
        enables it.
    """

    M: np.ndarray
    P: np.ndarray
    free: float
    needs: list[tuple[list[int], list[int]]]

    def prefix_costs(self, orders: np.ndarray) -> np.ndarray:
        """A(R_k) - W(R_{k-1}), f64[B, n], of int[B, n] orders of the recvs' indices."""
        batch, n = orders.shape
        rank = np.argsort(orders, axis=1).T  # int[n, B]
        last = np.empty((len(self.P), batch), dtype=np.int64)
        for c, (recvs, classes) in enumerate(self.needs):
            rows = [*(rank[r] for r in recvs), *(last[d] for d in classes)]
            last[c] = rows[0]
            for row in rows[1:]:
                np.maximum(last[c], row, out=last[c])
        cell = last + n * np.arange(batch)
        work = np.bincount(
            cell.ravel(), weights=np.repeat(self.P, batch), minlength=batch * n
        ).reshape(batch, n)
        # W(R_{k-1}), without the free operations
        before = np.cumsum(work, axis=1) - work
        return np.cumsum(self.M[orders], axis=1) - before - self.free

    def makespans(self, orders: np.ndarray) -> np.ndarray:
        """Seconds, f64[B], of int[B, n] orders of the recvs' indices, without sends."""
        computation = self.P.sum() + self.free
        if not orders.shape[1]:
            return np.full(len(orders), computation)
        worst = self.prefix_costs(orders).max(axis=1)
        return computation + np.maximum(worst, 0.0)


def prepare(graph: Graph) -> PreparedGraph:
    """The arrays of a graph; its sends are ignored."""
    recv = {name: i for i, name in enumerate(graph.recvs)}
    index: dict[int, int] = {}
    seconds: list[float] = []
    needs: list[tuple[list[int], list[int]]] = []
    free = 0.0
    for name, mask in graph.masks.items():
        if not mask:
            free += graph.ops[name][0]
        elif mask in index:
            seconds[index[mask]] += graph.ops[name][0]
        else:
            index[mask] = len(seconds)
            seconds.append(graph.ops[name][0])
            before = graph.ops[name][1]
            ops = {index[graph.masks[b]] for b in before if graph.masks.get(b)}
            needs.append(([recv[b] for b in before if b in recv], sorted(ops)))
    M = np.array([*graph.recvs.values()])
    return PreparedGraph(M, np.array(seconds), free, needs)
