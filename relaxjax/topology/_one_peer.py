"""Graphs in which each worker sends one message per round.

Sources: one-peer exponential graph (Assran et al. 2019, Ying et al. 2021); one-peer
hypercube, the same with pairs; random matching (Boyd et al. 2006); shift-one (BAGUA,
Gan et al. 2021), the pairs that a bipartite half walks through.

For n = 2^k the rounds of the first two multiply to the exact mean. For a random perfect
matching, the second largest eigenvalue of E[W^T W] is 1/2 - 1 / (2 (n - 1)).
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from relaxjax._core._checks import require_whole
from relaxjax.topology._checked import checked
from relaxjax.topology._static import log2_of
from relaxjax.topology._topology import Topology


def one_peer_exponential(n: int) -> Topology:
    """Directed: in round k each worker averages with the one 2^k places before it.

    Args:
      n: number of workers, 1 or more, else a ValueError; for a power of 2 a period
        gives the exact mean.

    Example:
      >>> import relaxjax
      >>> graph = relaxjax.topology.one_peer_exponential(8)
      >>> print(graph.period, graph.degree, round(graph.spectral_gap(), 3))
      3 1 1.0
    """
    require_whole("one_peer_exponential", "n", n)
    rounds = max(1, math.ceil(math.log2(n)))
    at = np.arange(n)
    matrices = [np.eye(n) / 2 for _ in range(rounds)]
    for k, w in enumerate(matrices):
        w[at, (at - 2**k) % n] += 0.5
    return checked("one_peer_exponential", matrices)


def one_peer_hypercube(n: int) -> Topology:
    """In round k, workers whose numbers differ in bit k are paired.

    Args:
      n: number of workers, a power of 2; else a ValueError.
    """
    bits = log2_of("one_peer_hypercube", n, "one_peer_exponential(n) or base_graph(n)")
    pairs = [[(i, i ^ (1 << k)) for i in range(n)] for k in range(bits)]
    return checked("one_peer_hypercube", [_halves(n, some) for some in pairs or [[]]])


def random_matching(n: int, seed: int = 0, *, period: int = 64) -> Topology:
    """New pairs in each round, drawn once.

    Args:
      n: number of workers, even.
      seed: seed of the draws.
      period: number of rounds that are drawn; the program grows with it.

    Raises:
      ValueError: `n` is odd or below 2, `period < 1`.
    """
    _require_even("random_matching", n)
    require_whole("random_matching", "period", period)
    rng = np.random.default_rng(seed)
    draws = (rng.permutation(n).reshape(-1, 2).tolist() for _ in range(period))
    return checked("random_matching", [_halves(n, pairs) for pairs in draws])


def shift_one(n: int) -> Topology:
    """The lower half of the workers walks along the upper half.

    Args:
      n: number of workers, even; else a ValueError.
    """
    _require_even("shift_one", n)
    half = n // 2
    steps = ([(i, (t + i) % half + half) for i in range(half)] for t in range(half))
    return checked("shift_one", [_halves(n, pairs) for pairs in steps])


def _halves(n: int, pairs: Iterable[Sequence[int]]) -> np.ndarray:
    """The matrix by which each pair takes its mean, and all others stay."""
    w = np.eye(n)
    for i, j in pairs:
        w[[i, j, i, j], [i, j, j, i]] = 0.5
    return w


def _require_even(name: str, n: int) -> None:
    require_whole(name, "n", n)
    if n % 2:
        raise ValueError(
            f"{name}: n={n} must be even, as all workers are paired; for odd numbers "
            "use one_peer_exponential(n) or base_graph(n)"
        )
