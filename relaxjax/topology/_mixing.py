"""Whether the workers of a graph come to one value, without eigenvalues if possible.

They do where the spectral gap is above 0. A doubly stochastic product of rounds is a
Markov chain whose stationary distribution is even; if each worker keeps a part of its
own in every round, it has no period, and is irreducible if and only if the links of all
rounds connect the workers.

Cost: linear in links, times the logarithm of workers or so; else that of eigenvalues.
"""

import numpy as np

from relaxjax.topology._topology import Topology

_NO_GAP = 1e-9


def mixes(graph: Topology) -> bool:
    """Whether the spectral gap is above 0.

    Args:
      graph: a topology, doubly stochastic or not.

    Example:
      >>> from relaxjax import topology
      >>> topology.mixes(topology.ring(4)), topology.mixes(topology.random_matching(2))
      (True, True)
    """
    if graph.n == 1:
        return True
    kept = (np.sum(links.targets == links.sources) for links in graph.rounds)
    if min(kept) < graph.n or not graph.is_doubly_stochastic:
        return graph.spectral_gap() >= _NO_GAP
    targets = np.concatenate([links.targets for links in graph.rounds])
    sources = np.concatenate([links.sources for links in graph.rounds])
    return _connected(graph.n, targets, sources)


def _connected(n: int, a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the links a - b, in either direction, lead from each worker to all.

    Each worker takes the smallest label at either end of its links, then that label's
    own, until none changes.
    """
    label = np.arange(n)
    while True:
        least = label.copy()
        np.minimum.at(least, a, label[b])
        np.minimum.at(least, b, label[a])
        least = least[least]
        if np.array_equal(least, label):
            return not label.any()
        label = least
