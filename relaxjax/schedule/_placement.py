"""Where parameters live, and in which messages they travel.

A parameter lives on the server that was least loaded when it was placed, the largest
parameter first. It travels as one message, or in slices, each with a latency of its
own, that go round the servers from there (P3; the partitions of BytePS). Messages
travel in segments, as packets do, without a latency of their own, so that two workers
share a server's link in turns, and two servers a worker's.

Cost: O(segments + n log n) for n parameters.
"""

import math
from typing import NamedTuple

from relaxjax.schedule._cluster import Cluster
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._policies import Policy


class PlacedSegment(NamedTuple):
    """A part of a message that is not interrupted.

    Attributes:
      server: index of the server that holds it.
      nbytes: bytes.
      latencies: 1 if it is the first of its slice, which pays a latency, else 0.
    """

    server: int
    nbytes: float
    latencies: int


def messages(
    graph: Graph, policy: Policy, cluster: Cluster
) -> dict[str, list[PlacedSegment]]:
    """The segments of every parameter and gradient, in order."""
    names = dict.fromkeys([*graph.recvs, *graph.sends])
    sizes = {name: size_of(graph, name, cluster) for name in names}
    owner = _place(sizes, cluster.servers)
    return {
        name: _cut(nbytes, owner[name], policy.partition_bytes, cluster)
        for name, nbytes in sizes.items()
    }


def size_of(graph: Graph, name: str, cluster: Cluster) -> float:
    """Bytes of a recv or send: if not known, as many as take its time on the link."""
    if name in graph.nbytes:
        return graph.nbytes[name]
    link = cluster.classes[0].link
    seconds = graph.recvs[name] if name in graph.recvs else graph.sends[name][0]
    return max(0.0, seconds - link.latency) * link.rate


def _place(sizes: dict[str, float], servers: int) -> dict[str, int]:
    """The server of each parameter: the largest first, to the least loaded."""
    load = [0.0] * servers
    owner = {}
    for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
        owner[name] = load.index(min(load))
        load[owner[name]] += sizes[name]
    return owner


def _cut(
    nbytes: float, owner: int, largest: int | None, cluster: Cluster
) -> list[PlacedSegment]:
    slices = max(1, math.ceil(nbytes / largest)) if largest else 1
    each = max(1, math.ceil(nbytes / slices / cluster.segment_bytes))
    return [
        PlacedSegment((owner + i) % cluster.servers, nbytes / slices / each, int(not j))
        for i in range(slices)
        for j in range(each)
    ]
