"""Where parameters live, and in which messages they travel.

A parameter lives on the server that was least loaded when it was placed, the largest
parameter first; its gradient goes there. Each travels as one message, or in slices,
each with a latency of its own, that go round the servers from there (P3; the partitions
of BytePS). Messages travel in segments, as packets do, without a latency of their own,
so that two workers share a server's link in turns, and two servers a worker's.

A transfer whose bytes are known takes latency + bytes / bandwidth. One whose bytes are
not known has as many as take its own seconds on the first workers' link, after the
latency. If its seconds are fewer than the latency, it has no bytes and pays that share
of the latency: a transfer of 0 seconds is free.

Cost: O(segments + n log n) for n parameters.
"""

import math
from typing import NamedTuple

from relaxjax.schedule.graphs._graph import Graph
from relaxjax.schedule.graphs._hardware import Link
from relaxjax.schedule.simulator._cluster import Cluster
from relaxjax.schedule.simulator._policies import Policy


class Size(NamedTuple):
    """How much is pulled or pushed.

    Attributes:
      nbytes: bytes.
      latencies: 1, or the share of a latency that a shorter transfer pays.
    """

    nbytes: float
    latencies: float


class PlacedSegment(NamedTuple):
    """A part of a message that is not interrupted.

    Attributes:
      server: index of the server that holds it.
      nbytes: bytes.
      latencies: what its slice pays if it is the first of its slice, else 0.
    """

    server: int
    nbytes: float
    latencies: float


Segments = dict[str, list[PlacedSegment]]
"""The segments of each transfer, in order."""


def messages(
    graph: Graph, policy: Policy, cluster: Cluster
) -> tuple[Segments, Segments]:
    """The segments of every pull and of every push."""
    link = cluster.classes[0].link
    pulls = {name: _size(graph, name, t, link) for name, t in graph.recvs.items()}
    pushes = {name: push_size(graph, name, link) for name in graph.sends}
    sizes = {name: size.nbytes for name, size in (pushes | pulls).items()}
    owner = _place(sizes, cluster.servers)

    def cut(transfers: dict[str, Size]) -> Segments:
        return {
            name: _cut(size, owner[name], policy.partition_bytes, cluster)
            for name, size in transfers.items()
        }

    return cut(pulls), cut(pushes)


def push_size(graph: Graph, name: str, link: Link) -> Size:
    """The size of a push on a link that gives its seconds."""
    return _size(graph, name, graph.sends[name][0], link)


def _size(graph: Graph, name: str, seconds: float, link: Link) -> Size:
    if name in graph.nbytes:
        return Size(graph.nbytes[name], 1)
    if seconds < link.latency:
        return Size(0.0, seconds / link.latency)
    return Size((seconds - link.latency) * link.rate, 1)


def _place(sizes: dict[str, float], servers: int) -> dict[str, int]:
    """The server of each parameter: the largest first, to the least loaded."""
    load = [0.0] * servers
    owner = {}
    for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
        owner[name] = load.index(min(load))
        load[owner[name]] += sizes[name]
    return owner


def _cut(
    size: Size, owner: int, largest: int | None, cluster: Cluster
) -> list[PlacedSegment]:
    nbytes, latencies = size
    slices = max(1, math.ceil(nbytes / largest)) if largest else 1
    each = max(1, math.ceil(nbytes / slices / cluster.segment_bytes))
    return [
        PlacedSegment(
            (owner + i) % cluster.servers,
            nbytes / slices / each,
            0 if j else latencies,
        )
        for i in range(slices)
        for j in range(each)
    ]
