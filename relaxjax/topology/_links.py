"""A round as its weights that are not 0, as large as its links."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from relaxjax._core._checks import is_whole

TOLERANCE = 1e-6


class Links(NamedTuple):
    """Worker `targets[k]` takes `weights[k]` of the value of `sources[k]`.

    What a worker keeps of its own is a link to itself. Each pair is there at most once,
    sorted by target, then source.

    Attributes:
      targets: int64[m].
      sources: int64[m].
      weights: float64[m].
    """

    targets: np.ndarray
    sources: np.ndarray
    weights: np.ndarray

    def between(self) -> "Links":
        """Without what a worker keeps of its own."""
        return Links(*(x[self.targets != self.sources] for x in self))

    def degree(self) -> int:
        """The largest number of messages that a worker sends."""
        return int(np.bincount(self.between().sources, minlength=1).max())

    def by_pair(self) -> dict[tuple[int, int], float]:
        """Weights by source and target."""
        pairs = zip(self.sources.tolist(), self.targets.tolist(), strict=True)
        return dict(zip(pairs, self.weights.tolist(), strict=True))

    def row_sums(self, n: int) -> np.ndarray:
        """float64[n], of each target's weights."""
        return np.bincount(self.targets, self.weights, n)

    def column_sums(self, n: int) -> np.ndarray:
        """float64[n], of each source's weights."""
        return np.bincount(self.sources, self.weights, n)

    def matrix(self, n: int) -> np.ndarray:
        """float64[n, n]; entry (i, j) is the weight of j's value at i."""
        w = np.zeros((n, n))
        w[self.targets, self.sources] = self.weights
        return w

    def is_symmetric(self) -> bool:
        """Whether the weights in both directions are equal, to 1e-12."""
        order = np.lexsort((self.targets, self.sources))
        back = Links(self.sources[order], self.targets[order], self.weights[order])
        same = np.array_equal(self.targets, back.targets) and np.array_equal(
            self.sources, back.sources
        )
        return same and bool(np.abs(self.weights - back.weights).max() <= 1e-12)


def are_ones(sums: np.ndarray) -> bool:
    """Whether all are 1, to rounding."""
    return bool(np.abs(sums - 1).max() <= TOLERANCE)


def summed(
    n: int, targets: np.ndarray, sources: np.ndarray, weights: np.ndarray | float
) -> Links:
    """Links of n workers in any order; weights of the same pair add up."""
    weights = np.broadcast_to(weights, targets.shape)
    pairs, place = np.unique(targets * n + sources, return_inverse=True)
    total = np.bincount(place, weights, len(pairs))
    there = total != 0
    return Links(pairs[there] // n, pairs[there] % n, total[there])


def require_links(n: Any, rounds: Any) -> None:
    """Refuses what are no links of some rounds of n workers.

    Raises:
      TypeError: `n` is no number of workers, or `rounds` are not links.
    """
    given = isinstance(rounds, Sequence) and set(map(type, rounds))
    if given != {Links} or not is_whole(n) or n < 1:
        raise TypeError(
            f"Topology: n={n!r:.60} must be a whole number, 1 or more, and "
            f"rounds={rounds!r:.60} the Links of one round or more: "
            "relaxjax.topology.from_matrix(w, name=...) makes both of weights"
        )


def rounds_of(caller: str, w: Any) -> list[np.ndarray]:
    """float64[n, n] of each round, from one matrix or several.

    Raises:
      ValueError: a matrix is not square or does not hold numbers, or none is given.
    """
    try:
        found: Any = np.asarray(w, np.float64)
    except (TypeError, ValueError):  # a text, or matrices of several sizes
        found = np.empty(())
    found = found[None] if found.ndim == 2 else found
    if found.ndim != 3 or not len(found) or found.shape[1] != found.shape[2]:
        raise ValueError(
            f"{caller}: the shape {found.shape[-2:]} of a matrix must be (n, n), the "
            "same in every round: give numbers, [n, n] or [period, n, n], and not "
            f"{w!r:.60}"
        )
    return list(found)


def of_matrix(w: np.ndarray) -> Links:
    """The links of float64[n, n]."""
    targets, sources = np.nonzero(w)
    return Links(targets, sources, w[targets, sources])


def with_own(n: int, links: Links, own: np.ndarray | float) -> Links:
    """The links, and the weight `own` of each worker's own value besides."""
    at = np.arange(n)
    targets, sources = np.append(links.targets, at), np.append(links.sources, at)
    weights = np.append(links.weights, np.broadcast_to(own, n))
    return summed(n, targets, sources, weights)


def undirected(n: int, a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> Links:
    """Both directions of each link a - b, there once; the rest is a worker's own."""
    targets, sources = np.concatenate([a, b]), np.concatenate([b, a])
    both = np.concatenate([weights, weights])
    own = 1 - np.bincount(targets, both, n)
    return with_own(n, Links(targets, sources, both), own)
