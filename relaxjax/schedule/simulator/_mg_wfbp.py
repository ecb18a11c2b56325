"""MG-WFBP: small gradients travel together while waiting for the next one pays.

Source: Shi, Chu and Li, "MG-WFBP: Efficient data communication for distributed
synchronous SGD algorithms", INFOCOM 2019.

A collective of n bytes takes t(n) = alpha + beta n; gradients become ready at ready(l),
from the last layer L to the first; one collective runs at a time. The start of l is

    tau(l) = max( tau(l+1) + t(l+1),  ready(l) )

and l is merged into l-1, the next to be ready, iff

    ready(l-1) < tau(l) + alpha

since waiting for l-1 then costs less than a second alpha.

Cost: O(V + E).
"""

from collections.abc import Callable

from relaxjax.schedule.graphs._graph import Graph, latest
from relaxjax.schedule.graphs._hardware import Cost, Link
from relaxjax.schedule.simulator._placement import push_size
from relaxjax.schedule.simulator._policies import Policy


def mg_wfbp(graph: Graph, collective: Callable[[int], Cost], link: Link) -> Policy:
    """Wait-free back-propagation with merged gradients.

    Args:
      graph: a graph with sends; its times say when gradients are ready.
      collective: from bytes to the cost of reducing them.
      link: the workers' link.

    Example:
      >>> graph = Graph(
      ...     recvs={},
      ...     ops={"b2": (1.0, []), "b1": (0.1, ["b2"])},
      ...     sends={"w2": (1, ["b2"]), "w1": (1, ["b1"])},
      ...     nbytes={"w1": 100, "w2": 100},
      ... )
      >>> slow_start = Link(latency=1.0, bandwidth=1e9)
      >>> mg_wfbp(graph, lambda n: Cost(1, n), slow_start).buckets
      (('w2', 'w1'),)
    """
    ready = _ready(graph)
    names = sorted(graph.sends, key=ready.__getitem__)
    alpha = link.seconds(0, collective(0).messages)

    def seconds(bucket: list[str]) -> float:
        cost = collective(
            round(sum(push_size(graph, name, link).nbytes for name in bucket))
        )
        return link.seconds(cost.nbytes, cost.messages)

    buckets: list[list[str]] = []
    tau_end = 0.0  # tau(l+1) + t(l+1)
    bucket: list[str] = []
    for name, following in zip(names, [*names[1:], None], strict=True):
        bucket.append(name)
        tau = max(tau_end, ready[name])
        if following is not None and ready[following] < tau + alpha:
            continue
        buckets.append(bucket)
        tau_end = tau + seconds(bucket)
        bucket = []
    return Policy(
        "mg_wfbp",
        collective=collective,
        buckets=tuple(map(tuple, buckets)),
        barrier=False,
    )


def _ready(graph: Graph) -> dict[str, float]:
    """When each gradient is ready, if all parameters are there from the start."""
    now, done = 0.0, dict.fromkeys(graph.recvs, 0.0)
    for name, (seconds, _) in graph.ops.items():
        done[name] = now = now + seconds
    return {name: latest(done, needs) for name, (_, needs) in graph.sends.items()}
