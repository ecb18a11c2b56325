"""Who talks to whom, with which weights: a topology as data.

A round is a matrix W: worker i replaces x_i by sum_j W_ij x_j. Its rows sum to 1, so
that equal values stay; where its columns do as well ("doubly stochastic"), the workers'
mean stays. Several rounds, repeated one after the other, make a time-varying graph.

Spectral gap: 1 - |lambda_2|, with lambda_2 the second largest eigenvalue by magnitude
of the product of a period's rounds. In the limit, disagreement shrinks by |lambda_2| in
each period; a gap of 1 is exact agreement after a period.

Cost: only links are kept, so that a graph is as large as the messages of a period;
`matrices` and what takes eigenvalues are quadratic and cubic in workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from relaxjax._core.foreign._folders import local_path
from relaxjax.topology._coloring import colored
from relaxjax.topology._links import (
    Links,
    are_ones,
    of_matrix,
    require_links,
    rounds_of,
)

Pairs = tuple[tuple[int, int], ...]


class Message(NamedTuple):
    """A partial permutation: at most one message from, and one to, each worker.

    Attributes:
      pairs: source and target of each message.
      weights: float64[n], the weight at each target; 0 where nothing arrives.
    """

    pairs: Pairs
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class Topology:
    """A graph over n workers, or a period of graphs.

    The functions of `relaxjax.topology` make and check topologies.

    Attributes:
      name: name in errors and titles.
      n: number of workers.
      rounds: the links of each round, after which they repeat.
    """

    name: str
    n: int
    rounds: Sequence[Links] = ()

    def __post_init__(self) -> None:
        """Refuses weights in the place of links.

        Raises:
          TypeError: `n` is no number of workers, or `rounds` are not links.
        """
        require_links(self.n, self.rounds)

    @staticmethod
    def of_matrices(name: str, matrices: Any) -> "Topology":
        """A topology of float[period, n, n], whose weights nobody has checked.

        `relaxjax.topology.from_matrix` checks.

        Raises:
          ValueError: the matrices are not square.
        """
        w = rounds_of("of_matrices", matrices)
        return Topology(name, len(w[0]), tuple(map(of_matrix, w)))

    @property
    def period(self) -> int:
        """Number of rounds, after which they repeat."""
        return len(self.rounds)

    @property
    def matrices(self) -> np.ndarray:
        """float64[period, n, n]; entry (i, j) is the weight of j's value at i."""
        return np.stack([links.matrix(self.n) for links in self.rounds])

    @cached_property
    def degree(self) -> int:
        """The largest number of messages that a worker sends in a round."""
        return max(links.degree() for links in self.rounds)

    @cached_property
    def is_row_stochastic(self) -> bool:
        """Whether every round keeps equal values as they are."""
        return all(are_ones(links.row_sums(self.n)) for links in self.rounds)

    @cached_property
    def is_doubly_stochastic(self) -> bool:
        """Whether every round keeps the workers' mean, and equal values as they are."""
        columns = all(are_ones(links.column_sums(self.n)) for links in self.rounds)
        return self.is_row_stochastic and columns

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every round has equal weights in both directions."""
        return all(links.is_symmetric() for links in self.rounds)

    def matrix(self, round: int = 0) -> np.ndarray:
        """float64[n, n], the matrix of a round.

        Args:
          round: number of the round, from 0; rounds repeat after a period.
        """
        return self.rounds[round % self.period].matrix(self.n)

    def eigenvalues(self) -> np.ndarray:
        """complex128[n], those of a period's product, the largest magnitude first."""
        product = np.eye(self.n)
        for round in range(self.period):
            product = self.matrix(round) @ product
        values = np.linalg.eigvals(product)
        return values[np.argsort(-np.abs(values), kind="stable")]

    def spectral_gap(self) -> float:
        """1 minus the second largest magnitude of `eigenvalues`; 1 for one worker."""
        values = self.eigenvalues()
        return 1.0 - float(np.abs(values[1])) if self.n > 1 else 1.0

    def messages(self, round: int = 0) -> list[Message]:
        """A round as permutations, as many as the busiest worker has neighbors.

        Args:
          round: number of the round, from 0; rounds repeat after a period.
        """
        links = self.rounds[round % self.period]
        weight, messages = links.by_pair(), []
        for pairs in colored(self.n, links.between()):
            weights = np.zeros(self.n)
            for source, target in pairs:
                weights[target] = weight[source, target]
            messages.append(Message(pairs, weights))
        return messages

    def draw(self, path: str | PathLike[str]) -> None:
        """Writes a PNG: the workers on a circle, a panel for each round (at most 8).

        Args:
          path: path of the file.

        Raises:
          ImportError: matplotlib is missing; the message names the extra.
        """
        from relaxjax.topology._draw import draw_rounds

        draw_rounds(local_path("draw", "path", path), self.name, self.matrices)
