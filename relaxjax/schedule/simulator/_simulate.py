"""The simulator's door: one call for parameter servers, collectives, local steps.

Cost: see `_simulate_servers` and `_simulate_collectives`; about ten microseconds per
job.
"""

import random

from relaxjax._core._checks import check_type
from relaxjax._core.foreign._fields import check_count
from relaxjax.schedule.graphs._graph import Graph
from relaxjax.schedule.simulator._cluster import Cluster
from relaxjax.schedule.simulator._policies import Policy, check_policy, unordered
from relaxjax.schedule.simulator._simulate_collectives import CollectiveSteps
from relaxjax.schedule.simulator._simulate_servers import ServerSteps
from relaxjax.schedule.simulator._steps import Scene, make_workers
from relaxjax.schedule.simulator._timeline import Timeline, TraceClock

_VARIETY = {"random": 16, "fifo": 8, "priority": 8}
"""Typical workers of a class that are simulated when not every worker is."""

_UNORDERED = unordered()
_ONE_WORKER = Cluster()


def simulate(
    graph: Graph,
    policy: Policy = _UNORDERED,
    cluster: Cluster = _ONE_WORKER,
    *,
    steps: int = 1,
    seed: int = 0,
) -> Timeline:
    """Runs the steps of data-parallel workers in simulated time.

    A step ends when its parameters have arrived, its operations are done, and its
    gradients have been received. Transfers of the same priority are served in the order
    in which they become ready. Of those that become ready at the same instant, the one
    of the earlier step goes first, then the parameter that comes first in the graph,
    then the first segment, then the worker with the smallest number.

    Args:
      graph: the graph of each worker. Transfers travel with their bytes over the
        cluster's links. If the bytes are not known, a pull or a push has as many as
        take its own seconds, a latency included, on the link of the first class of
        workers; with fewer seconds than a latency it pays only these, and 0 seconds are
        free.
      policy: what is sent, when and in which order.
      cluster: workers, servers, links and stragglers. Above 1024 workers each class of
        identical ones is represented by four of them, among them its slowest and its
        fastest of the step, and by 8 typical ones (16 if orders are random) that stand
        for the rest.
      steps: number of steps.
      seed: seed of random orders and stragglers; the same seed gives the same timeline.

    Returns:
      What happened when.

    Raises:
      TypeError: steps, policy or cluster are of another type, such as a bare list.
      ValueError: no steps, or a policy that does not fit the graph.

    Example:
      >>> from relaxjax.schedule import ordered
      >>> graph = Graph(
      ...     recvs={"a": 1.0, "b": 1.0},
      ...     ops={"first": (2.0, ["a"]), "second": (1.0, ["first", "b"])},
      ... )
      >>> [round(simulate(graph, ordered("", o)).seconds, 6) for o in ("ab", "ba")]
      [4.0, 5.0]
    """
    check_count("steps", steps)
    check_type(
        "policy", policy, Policy, 'wrap a list of names as ordered("tac", tac(graph))'
    )
    check_type("cluster", cluster, Cluster, "give Cluster(workers=8, servers=2)")
    check_policy(graph, policy)
    rng = random.Random(seed)
    workers = make_workers(cluster, rng, _VARIETY[policy.queue])
    clock = TraceClock(len(workers))
    scene = Scene(graph, policy, cluster, workers, rng, clock)
    kind = ServerSteps if policy.collective is None else CollectiveSteps
    kind(scene, steps).run()
    weights = [worker.weight for worker in workers]
    return Timeline(policy.name, scene.engine.spans, clock, weights)
