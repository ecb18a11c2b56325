"""What the schedule knows of a cell, and what it returns: orders and predictions.

Cost: 200 simulations for the best order, and one for each prediction.
"""

from functools import partial
from statistics import fmean
from typing import NamedTuple

from benchmarks.testbed import LayerModel, Step, measured_graph
from relaxjax import schedule
from relaxjax.schedule import Cluster, Graph, Link

SEGMENT = 64e3
"""Bytes in which messages share a link: about what TCP hands over at once."""


class Cell(NamedTuple):
    """What is run.

    Attributes:
      workers: number of workers.
      servers: number of servers.
      mode: "inference" or "training".
    """

    workers: int
    servers: int
    mode: str


class CellPlan(NamedTuple):
    """What the schedule knows.

    Attributes:
      graph: a worker's graph, transfers timed by its share of the busiest link.
      cluster: the cluster of the simulation.
      link: the link of each process.
    """

    graph: Graph
    cluster: Cluster
    link: Link

    @classmethod
    def of(
        cls,
        model: LayerModel,
        cell: Cell,
        timed: list[Step],
        rate: float,
        pulled: float,
    ) -> "CellPlan":
        """The plan of what was measured.

        Args:
          model: the model of every worker.
          cell: workers and servers.
          timed: steps in layer order.
          rate: bytes per second that each link was set to.
          pulled: seconds of pulls alone.
        """
        nominal = Link(0.0, rate)
        bare = Graph(dict.fromkeys(model.nbytes, 0.0), {}, nbytes=model.nbytes)
        names = list(model.nbytes)
        cluster = Cluster(cell.workers, cell.servers, nominal, segment_bytes=SEGMENT)
        ideal = simulated(bare, cluster, names)
        link = Link(0.0, rate * ideal / pulled)
        share = link.bandwidth * min(1.0, cell.servers / cell.workers)
        cluster = Cluster(cell.workers, cell.servers, link, segment_bytes=SEGMENT)
        return cls(measured_graph(model, timed, Link(0.0, share)), cluster, link)

    def orders(self, count: int) -> dict[str, list[str]]:
        """The orders that are compared, `count` random ones among them."""
        graph = self.graph
        objective = partial(simulated, graph, self.cluster)
        return {
            "layer": schedule.layer_order(graph),
            "tic": schedule.tic(graph),
            "tac": schedule.tac(graph),
            "best": schedule.best(graph, objective=objective, evaluations=200),
            **{
                f"random {i}": schedule.random_order(graph, seed=i)
                for i in range(count)
            },
        }

    def predictions(self, orders: dict[str, list[str]]) -> dict[str, float]:
        """Seconds of a step by order; for "none", the mean of twenty steps."""
        loose = schedule.simulate(
            self.graph, schedule.unordered(), self.cluster, steps=20
        )
        return {
            **{n: simulated(self.graph, self.cluster, o) for n, o in orders.items()},
            "none": fmean(max(step) for step in loose.step_times()),
        }


def simulated(graph: Graph, cluster: Cluster, order: list[str]) -> float:
    """Predicted seconds of a step with pulls in this order."""
    return schedule.simulate(graph, schedule.ordered("", order), cluster).seconds
