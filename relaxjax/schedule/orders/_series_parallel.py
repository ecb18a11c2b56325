"""The optimal order of a series-parallel graph, exactly, in polynomial time.

Source: Abdel-Wahab and Kameda, "Scheduling to minimize maximum cumulative cost subject
to series-parallel precedence constraints", Operations Research 26, 1978; Monma and
Sidney, "Sequencing with series-parallel precedence constraints", Mathematics of
Operations Research 4, 1979.

Jobs: each recv costs its time, each class of operations (equal op.dep) gives its time
back; a class comes after its recvs and after the classes whose recvs are a subset of
its recvs. A run of jobs is a *segment* (h, c): h the highest partial sum of its costs,
c their sum. Two runs in a row are

    (h1, c1) then (h2, c2)  =  (max(h1, c1 + h2), c1 + c2)

and side by side they interchange by Johnson's rule on the times (h, h - c): those with
c < 0 first by rising h, then the others by falling h - c. Series: the segments of one
part after those of the other, any that violate the rule welded into one.
Parallel: all segments merged by the rule. Because recvs are sources, these are the
graphs that join like rivers: chains, towers, and any forest of them.

Cost: O(N^2) set operations for N jobs, to find the decomposition.
"""

from collections.abc import Iterable
from typing import NamedTuple

from relaxjax.schedule.graphs._graph import Graph, bits
from relaxjax.schedule.orders._properties import exact_times

LIMIT = 400
"""The most jobs for which the decomposition, a recursion of that depth, is tried."""


class SeriesSegment(NamedTuple):
    """A run of jobs that an optimal order need not interrupt.

    Attributes:
      h: highest partial sum of costs, at least 0.
      c: sum of costs.
      jobs: indices, in order.
    """

    h: int
    c: int
    jobs: tuple[int, ...]

    @property
    def key(self) -> tuple[int, int]:
        """Sorts segments by Johnson's rule."""
        return (0, self.h) if self.c < 0 else (1, self.c - self.h)


def series_parallel_order(graph: Graph) -> list[str] | None:
    """An optimal order if the graph is series-parallel, else None.

    Args:
      graph: the worker's graph; its sends are ignored.

    Returns:
      Every recv once, the first to be sent first; None if the graph is not
      series-parallel or has more than 400 recvs and distinct sets of recvs.

    Example:
      Two towers under one join:

      >>> graph = Graph(
      ...     recvs={"A": 3, "B": 1},
      ...     ops={"a": (2, ["A"]), "b": (4, ["B"]), "join": (1, ["a", "b"])},
      ... )
      >>> series_parallel_order(graph)
      ['B', 'A']
    """
    n = len(graph.recvs)
    masks = sorted({m for m in graph.masks.values() if m}, key=int.bit_count)
    if n + len(masks) > LIMIT:
        return None
    times, freed = exact_times(graph)
    costs = times + [-freed[mask] for mask in masks]
    below = _below(n, masks)
    segments = _solve((1 << len(costs)) - 1, costs, below, _comparable(below))
    if segments is None:
        return None
    names = list(graph.recvs)
    return [names[job] for s in segments for job in s.jobs if job < n]


def _below(n: int, masks: list[int]) -> list[int]:
    """For each job, the jobs that must come before it, as bits."""
    below = [0] * n
    for c, mask in enumerate(masks):
        inner = (n + d for d in range(c) if masks[d] & mask == masks[d])
        below.append(mask | sum(1 << d for d in inner))
    return below


def _comparable(below: list[int]) -> list[int]:
    """For each job, the jobs that must come before or after it, as bits."""
    both = list(below)
    for job, before in enumerate(below):
        for other in bits(before):
            both[other] |= 1 << job
    return both


def _solve(
    jobs: int, costs: list[int], below: list[int], related: list[int]
) -> list[SeriesSegment] | None:
    """Segments of an optimal order of the set `jobs`; None: not series-parallel."""
    if jobs.bit_count() == 1:
        job = jobs.bit_length() - 1
        return [SeriesSegment(max(costs[job], 0), costs[job], (job,))]
    parts, series = _components(jobs, related, complement=0), False
    if len(parts) == 1:
        parts, series = _components(jobs, related, complement=jobs), True
    if len(parts) == 1:
        return None
    # When two parts are in series, all jobs of one lie below all jobs of the other.
    parts.sort(
        key=lambda part: (below[part.bit_length() - 1] & jobs & ~part).bit_count()
    )
    segments: list[SeriesSegment] = []
    for part in parts:
        solved = _solve(part, costs, below, related)
        if solved is None:
            return None
        segments += solved
    return _weld(segments) if series else sorted(segments, key=lambda s: s.key)


def _weld(segments: Iterable[SeriesSegment]) -> list[SeriesSegment]:
    """Joins neighbors that violate Johnson's rule."""
    welded: list[SeriesSegment] = []
    for segment in segments:
        while welded and welded[-1].key > segment.key:
            first = welded.pop()
            segment = SeriesSegment(
                max(first.h, first.c + segment.h),
                first.c + segment.c,
                first.jobs + segment.jobs,
            )
        welded.append(segment)
    return welded


def _components(jobs: int, related: list[int], *, complement: int) -> list[int]:
    """Connected parts of `jobs` under `related`, or under its complement."""
    parts = []
    while jobs:
        part = frontier = jobs & -jobs
        while frontier:
            reached = 0
            for job in bits(frontier):
                reached |= related[job] ^ complement
            frontier = reached & jobs & ~part
            part |= frontier
        parts.append(part)
        jobs &= ~part
    return parts
