"""Who talks to whom, with which weights: a topology as data.

A round is a matrix W: worker i replaces x_i by sum_j W_ij x_j. Its rows sum to 1, so
that equal values stay; where its columns do as well ("doubly stochastic"), the workers'
mean stays. Several rounds, one after the other and then again, make a time-varying
graph.

Spectral gap: 1 - |lambda_2|, of the product of a period's rounds, lambda_2 its second
largest eigenvalue by magnitude. Disagreement shrinks by |lambda_2| in a period, in the
limit; a gap of 1 is exact agreement after a period.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import NamedTuple

import numpy as np

from relaxjax.topology._coloring import colored

Pairs = tuple[tuple[int, int], ...]
_TOLERANCE = 1e-6


class Message(NamedTuple):
    """What travels at once: at most one message from, and one to, each worker.

    Attributes:
      pairs: of source and target.
      weights: float64[n], what a target weighs it by; 0 where nothing comes.
    """

    pairs: Pairs
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class Topology:
    """A graph over n workers, or a period of graphs.

    Made by the functions of `relaxjax.topology`, which check it.

    Attributes:
      name: as in errors and titles.
      matrices: float64[period, n, n]; entry (i, j) is what i weighs j's value by.
    """

    name: str
    matrices: np.ndarray

    @property
    def n(self) -> int:
        """Number of workers."""
        return self.matrices.shape[1]

    @property
    def period(self) -> int:
        """Number of rounds, after which they begin again."""
        return self.matrices.shape[0]

    @cached_property
    def degree(self) -> int:
        """The most messages that a worker sends in a round."""
        return max(
            int(np.count_nonzero(_links(w), axis=0).max()) for w in self.matrices
        )

    @cached_property
    def is_doubly_stochastic(self) -> bool:
        """Whether every round keeps the workers' mean, and equal values as they are."""
        return all(
            np.abs(self.matrices.sum(axis=axis) - 1).max() <= _TOLERANCE
            for axis in (1, 2)
        )

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether, in every round, each weighs the other alike."""
        return bool(np.abs(self.matrices - self.matrices.swapaxes(1, 2)).max() <= 1e-12)

    def matrix(self, round: int = 0) -> np.ndarray:
        """float64[n, n] of a round; they repeat after a period.

        Args:
          round: counted from 0.
        """
        return self.matrices[round % self.period].copy()

    def eigenvalues(self) -> np.ndarray:
        """complex128[n] of a period's product, the largest magnitude first."""
        product = np.eye(self.n)
        for w in self.matrices:
            product = w @ product
        values = np.linalg.eigvals(product)
        return values[np.argsort(-np.abs(values), kind="stable")]

    def spectral_gap(self) -> float:
        """1 minus the second magnitude of `eigenvalues`; 1 for a single worker."""
        values = self.eigenvalues()
        return 1.0 - float(np.abs(values[1])) if self.n > 1 else 1.0

    def messages(self, round: int = 0) -> list[Message]:
        """A round as permutations: as many as the busiest worker has neighbours.

        Args:
          round: counted from 0.
        """
        w = self.matrix(round)
        found = []
        for pairs in colored(_links(w)):
            weights = np.zeros(self.n)
            for source, target in pairs:
                weights[target] = w[target, source]
            found.append(Message(pairs, weights))
        return found

    def draw(self, path: str | PathLike[str]) -> None:
        """Writes a PNG: the workers on a circle, a panel for each round (at most 8).

        Args:
          path: of the file.

        Raises:
          ImportError: matplotlib is missing; the message names the extra.
        """
        from relaxjax.topology._draw import draw_rounds

        draw_rounds(path, self.name, self.matrices)


def _links(w: np.ndarray) -> np.ndarray:
    """bool[n, n] of W, without a worker's own weight."""
    links = w != 0
    np.fill_diagonal(links, False)
    return links


def checked(
    name: str, matrices: Sequence[np.ndarray], *, rows: bool = True
) -> Topology:
    """A topology whose matrices are what they should be.

    Args:
      name: of the topology.
      matrices: [n, n] each; one or more.
      rows: whether rows must sum to 1, as columns must.

    Raises:
      ValueError: a matrix is not square, not of the size of the first, not finite or
        negative somewhere; a row or column does not sum to 1 (which, by how much).
    """
    arrays = [np.asarray(w, np.float64) for w in matrices]
    for w in arrays:
        if w.ndim != 2 or w.shape != (w.shape[0],) * 2 or w.shape != arrays[0].shape:
            raise ValueError(
                f"{name}: the shape {w.shape} of a matrix must be (n, n), the same in "
                "every round"
            )
        if w.size == 0 or not np.isfinite(w).all() or w.min() < 0:
            bad = "it is empty" if w.size == 0 else f"it holds {_worst(w)}"
            raise ValueError(f"{name}: weights must be finite and 0 or more; {bad}")
        for kind, axis in (("row", 1), ("column", 0))[0 if rows else 1 :]:
            _require_sums(name, w, kind, axis)
    return Topology(name, np.stack(arrays))


def _worst(w: np.ndarray) -> float:
    bad = w[~np.isfinite(w)]
    return float(bad[0]) if bad.size else float(w.min())


def _require_sums(name: str, w: np.ndarray, kind: str, axis: int) -> None:
    sums = w.sum(axis=axis)
    worst = int(np.abs(sums - 1).argmax())
    if (off := sums[worst] - 1) and abs(off) > _TOLERANCE:
        remedy = (
            "rows that sum to 1 keep equal values as they are"
            if kind == "row"
            else "columns that sum to 1 keep the workers' mean"
        )
        raise ValueError(
            f"{name}: {kind} {worst} of the matrix sums to {sums[worst]:.6g}, off by "
            f"{off:+.3g}; {remedy}. relaxjax.topology.metropolis(links) makes such "
            "weights for any undirected graph"
        )
