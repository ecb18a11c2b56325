"""Graphs that are the same in every round.

Sources: ring, torus, star and complete graph with Metropolis weights (Xiao and Boyd
2004: W_ij = 1 / (1 + max(degree_i, degree_j))); hypercube and static exponential graph
(Ying et al. 2021), every weight 1 / (1 + degree).

Second largest eigenvalue by magnitude, n workers, L = ceil(log2 n):

    ring          1/3 + 2/3 cos(2 pi / n)       degree 2
    hypercube     1 - 2 / (1 + L)               L
    exponential   1 - 2 / (1 + L), n even       L, directed
    star          1 - 1 / n                     n - 1 and 1
    complete      0                             n - 1
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from relaxjax._core._checks import require_whole
from relaxjax._core.foreign._ranges import ALL_PAIRS, WORKERS
from relaxjax.topology._checked import checked
from relaxjax.topology._links import Links, of_matrix, summed
from relaxjax.topology._of_weights import by_metropolis
from relaxjax.topology._topology import Topology


def ring(n: int) -> Topology:
    """Each worker and its two neighbors, a third each.

    Args:
      n: number of workers, 1 or more; else a ValueError.

    Example:
      >>> import relaxjax
      >>> print(relaxjax.topology.ring(4).matrix().round(2))
      [[0.33 0.33 0.   0.33]
       [0.33 0.33 0.33 0.  ]
       [0.   0.33 0.33 0.33]
       [0.33 0.   0.33 0.33]]
    """
    require_whole("ring", "n", n, broken=WORKERS.broken)
    return checked("ring", n, [by_shifts(n, (1, -1))])


def torus(sides: tuple[int, int]) -> Topology:
    """A grid whose ends meet: each worker and its four neighbors, a fifth each.

    Args:
      sides: number of rows and columns; worker i is in row `i // columns`. On a side of
        2, two of the neighbors are the same worker; a side of 1 makes a ring, and one
        below 1 a ValueError.
    """
    for side in sides:
        require_whole("torus", "side", side, broken=WORKERS.broken)
    rows, columns = sides
    require_whole("torus", "rows times columns", rows * columns, broken=WORKERS.broken)
    place = np.arange(rows * columns).reshape(rows, columns)
    next_ones = [np.roll(place, -1, axis).ravel() for axis in (0, 1)]
    ends = np.tile(place.ravel(), 2), np.concatenate(next_ones)
    return by_metropolis(f"torus({rows}, {columns})", place.size, *ends)


def hypercube(n: int) -> Topology:
    """Each worker and those whose number differs in one bit.

    Args:
      n: number of workers, a power of 2; else a ValueError.
    """
    bits = log2_of("hypercube", n, "exponential(n) or base_graph(n)")
    at = np.arange(n)
    sources = [at, *(at ^ (1 << bit) for bit in range(bits))]
    return checked("hypercube", n, [_equal_weights(n, sources)])


def exponential(n: int) -> Topology:
    """Directed: each worker hears the workers 1, 2, 4 .. places before it.

    Args:
      n: number of workers, 1 or more; else a ValueError.
    """
    require_whole("exponential", "n", n, broken=WORKERS.broken)
    shifts = [2**k for k in range(math.ceil(math.log2(n)))]
    return checked("exponential", n, [by_shifts(n, shifts)])


def star(n: int) -> Topology:
    """Worker 0 and all others, which talk only to it (Metropolis weights).

    Args:
      n: number of workers, 1 or more; else a ValueError.
    """
    return _tree("star", n, lambda i: 0)


def chain(n: int) -> Topology:
    """Each worker and those just before and after it; a tree (Metropolis weights).

    Args:
      n: number of workers, 1 or more; else a ValueError.
    """
    return _tree("chain", n, lambda i: i - 1)


def binary_tree(n: int) -> Topology:
    """Worker i and its children 2 i + 1 and 2 i + 2 (Metropolis weights).

    Args:
      n: number of workers, 1 or more; else a ValueError.
    """
    return _tree("binary_tree", n, lambda i: (i - 1) // 2)


def complete(n: int) -> Topology:
    """All talk to all: the mean, in one round.

    Args:
      n: number of workers, 1 to 4096; else a ValueError.
    """
    require_whole("complete", "n", n, broken=ALL_PAIRS.broken)
    return checked("complete", n, [of_matrix(np.full((n, n), 1 / n))])


def _tree(name: str, n: int, parent: Callable[[int], int]) -> Topology:
    """Links from each worker but 0 to its parent, with Metropolis weights."""
    require_whole(name, "n", n, broken=WORKERS.broken)
    children = np.arange(1, n)
    return by_metropolis(
        name, n, children, np.array([parent(i) for i in range(1, n)], int)
    )


def log2_of(name: str, n: int, instead: str) -> int:
    """`log2 n`, for a graph that exists only for powers of 2."""
    require_whole(name, "n", n, broken=WORKERS.broken)
    if n & (n - 1):
        raise ValueError(
            f"{name}: n={n} must be a power of 2; for other numbers use {instead}"
        )
    return n.bit_length() - 1


def by_shifts(n: int, shifts: Sequence[int]) -> Links:
    """Each worker hears those so many places before it, with equal weights."""
    at = np.arange(n)
    return _equal_weights(n, [at, *((at - shift) % n for shift in shifts)])


def _equal_weights(n: int, sources: Sequence[np.ndarray]) -> Links:
    """Worker i hears the i-th of each of these; who is there twice counts twice."""
    targets = np.tile(np.arange(n), len(sources))
    links = summed(n, targets, np.concatenate(sources), 1.0)
    return links._replace(weights=links.weights / len(sources))
