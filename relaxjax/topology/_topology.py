"""Who talks to whom, with which weights: a topology as data.

A round is a matrix W: worker i replaces x_i by sum_j W_ij x_j. Its rows sum to 1, so
that equal values stay; where its columns do as well ("doubly stochastic"), the workers'
mean stays. Several rounds, repeated one after the other, make a time-varying graph.

Spectral gap: 1 - |lambda_2|, with lambda_2 the second largest eigenvalue by magnitude
of the product of a period's rounds. In the limit, disagreement shrinks by |lambda_2| in
each period; a gap of 1 is exact agreement after a period.
"""

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import NamedTuple

import numpy as np

from relaxjax.topology._coloring import colored

Pairs = tuple[tuple[int, int], ...]
TOLERANCE = 1e-6


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
      matrices: float64[period, n, n]; entry (i, j) is the weight of j's value at i.
    """

    name: str
    matrices: np.ndarray

    @property
    def n(self) -> int:
        """Number of workers."""
        return self.matrices.shape[1]

    @property
    def period(self) -> int:
        """Number of rounds, after which they repeat."""
        return self.matrices.shape[0]

    @cached_property
    def degree(self) -> int:
        """The largest number of messages that a worker sends in a round."""
        return max(int(_links(w).sum(axis=0).max()) for w in self.matrices)

    @cached_property
    def is_doubly_stochastic(self) -> bool:
        """Whether every round keeps the workers' mean, and equal values as they are."""
        sums = np.stack([self.matrices.sum(axis=axis) for axis in (1, 2)])
        return bool(np.abs(sums - 1).max() <= TOLERANCE)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every round has equal weights in both directions."""
        return bool(np.abs(self.matrices - self.matrices.swapaxes(1, 2)).max() <= 1e-12)

    def matrix(self, round: int = 0) -> np.ndarray:
        """float64[n, n], the matrix of a round.

        Args:
          round: number of the round, from 0; rounds repeat after a period.
        """
        return self.matrices[round % self.period].copy()

    def eigenvalues(self) -> np.ndarray:
        """complex128[n], those of a period's product, the largest magnitude first."""
        product = np.eye(self.n)
        for w in self.matrices:
            product = w @ product
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
        w = self.matrix(round)
        messages = []
        for pairs in colored(_links(w)):
            weights = np.zeros(self.n)
            for source, target in pairs:
                weights[target] = w[target, source]
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

        draw_rounds(path, self.name, self.matrices)


def _links(w: np.ndarray) -> np.ndarray:
    """bool[n, n], the links of W, without a worker's weight of itself."""
    links = w != 0
    np.fill_diagonal(links, False)
    return links
