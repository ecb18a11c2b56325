"""A period of rounds as arrays, of which a worker takes its place by the round.

Cost: n numbers for each round and each message of the busiest worker.
"""

from typing import NamedTuple

import numpy as np

from relaxjax.topology._topology import Topology


class Table(NamedTuple):
    """Who hears whom.

    Attributes:
      surplus: float64[period, n]: by how much the weights of a worker are more than 1.
      sources: int64[period, messages, n]: the sender of each message to a worker.
      weights: float64[period, messages, n]: its weight; 0 where no message arrives.
    """

    surplus: np.ndarray
    sources: np.ndarray
    weights: np.ndarray


def table_of(graph: Topology) -> Table:
    """All rounds of a period."""
    rounds = [graph.messages(round) for round in range(graph.period)]
    shape = (len(rounds), max(map(len, rounds)), graph.n)
    sources, weights = np.zeros(shape, int), np.zeros(shape)
    for round, messages in enumerate(rounds):
        for k, (pairs, weight) in enumerate(messages):
            for source, target in pairs:
                sources[round, k, target] = source
            weights[round, k] = weight
    sums = np.stack([links.row_sums(graph.n) for links in graph.rounds])
    return Table(sums - 1, sources, weights)
