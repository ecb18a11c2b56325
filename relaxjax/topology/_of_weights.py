"""Topologies of a user's own links or weights, and lazy ones.

Source: Metropolis weights, W_ij = 1 / (1 + max(degree_i, degree_j)): Xiao and Boyd
2004.
"""

from typing import Any

import numpy as np

from relaxjax._core._checks import check_type
from relaxjax.topology._checked import checked, checked_matrices
from relaxjax.topology._links import undirected, with_own
from relaxjax.topology._topology import Topology


def metropolis(links: Any, *, name: str = "metropolis") -> Topology:
    """Weights for any undirected graph: 1 / (1 + the larger degree of both ends).

    Args:
      links: bool[n, n], symmetric; the diagonal is ignored.
      name: name of the topology.

    Raises:
      ValueError: `links` is not square or not symmetric, or has a NaN.

    Example:
      >>> import relaxjax
      >>> path = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
      >>> print(relaxjax.topology.metropolis(path).matrix().round(2))
      [[0.67 0.33 0.  ]
       [0.33 0.33 0.33]
       [0.   0.33 0.67]]
    """
    links = np.array(links, np.float64)
    if np.isnan(links).any():
        raise ValueError(f"{name}: links have a NaN: say 1 or True for a link, or 0")
    links = links != 0
    if links.ndim != 2 or links.shape[0] != links.shape[1] or (links != links.T).any():
        raise ValueError(
            f"{name}: links of shape {links.shape} must be a symmetric [n, n]: these "
            "weights are for undirected graphs"
        )
    return by_metropolis(name, len(links), *np.nonzero(np.triu(links, 1)))


def from_matrix(w: Any, *, name: str = "from_matrix") -> Topology:
    """Your own matrix, or several that take turns.

    Args:
      w: float[n, n] or [period, n, n], 0 or more; worker i replaces its value by
        sum_j w[i, j] x_j. Rows and columns sum to 1.
      name: name of the topology.

    Raises:
      ValueError: `w` breaks one of these rules; the message says where and by how much.
    """
    return checked_matrices(name, w)


def from_column_stochastic(w: Any, *, name: str = "from_column_stochastic") -> Topology:
    """Your own matrix whose columns sum to 1, for `relaxjax.push_sum`.

    Args:
      w: float[n, n] or [period, n, n], 0 or more; worker j gives to worker i the share
        w[i, j] of its value.
      name: name of the topology.

    Raises:
      ValueError: a column does not sum to 1.
    """
    return checked_matrices(name, w, rows=False)


def lazy(topology: Topology) -> Topology:
    """`(W + I) / 2` in each round: half of each step, and no negative eigenvalue.

    Args:
      topology: any topology; all eigenvalues of a symmetric one end up in [0, 1].

    Example:
      >>> import relaxjax
      >>> print(relaxjax.topology.lazy(relaxjax.topology.complete(2)).matrix())
      [[0.75 0.25]
       [0.25 0.75]]
    """
    check_type("lazy: topology", topology, Topology, "give relaxjax.topology.ring(8)")
    rounds = [
        with_own(topology.n, links._replace(weights=links.weights / 2), 0.5)
        for links in topology.rounds
    ]
    rows = topology.is_doubly_stochastic
    return checked(f"lazy {topology.name}", topology.n, rounds, rows=rows)


def by_metropolis(name: str, n: int, a: np.ndarray, b: np.ndarray) -> Topology:
    """Metropolis weights on undirected links a - b; repeated ones and loops are one."""
    least, most = np.minimum(a, b), np.maximum(a, b)
    pairs = np.unique((least * n + most)[least < most])
    a, b = pairs // n, pairs % n
    degree = np.bincount(a, minlength=n) + np.bincount(b, minlength=n)
    weights = 1 / (1 + np.maximum(degree[a], degree[b]))
    return checked(name, n, [undirected(n, a, b, weights)])
