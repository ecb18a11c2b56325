"""Graphs in which each worker sends one message per round.

Sources: one-peer exponential graph (Assran et al. 2019, Ying et al. 2021); one-peer
hypercube, the same with pairs; random matching (Boyd et al. 2006); shift-one (BAGUA,
Gan et al. 2021), the pairs that a bipartite half walks through.

For n = 2^k the rounds of the first two multiply to the exact mean. For a random perfect
matching, the second largest eigenvalue of E[W^T W] is 1/2 - 1 / (2 (n - 1)).
"""

import math

import numpy as np

from relaxjax._core._checks import require_whole
from relaxjax._core.foreign._ranges import ALL_PAIRS, WORKERS, Range
from relaxjax.topology._checked import checked
from relaxjax.topology._links import Links, summed
from relaxjax.topology._static import by_shifts, log2_of
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
    require_whole("one_peer_exponential", "n", n, broken=WORKERS.broken)
    rounds = max(1, math.ceil(math.log2(n)))
    return checked(
        "one_peer_exponential", n, [by_shifts(n, [2**k]) for k in range(rounds)]
    )


def one_peer_hypercube(n: int) -> Topology:
    """In round k, workers whose numbers differ in bit k are paired.

    Args:
      n: number of workers, a power of 2; else a ValueError.
    """
    bits = log2_of("one_peer_hypercube", n, "one_peer_exponential(n) or base_graph(n)")
    at = np.arange(n)
    rounds = [_halves(n, at, at ^ (1 << k)) for k in range(bits)]
    return checked("one_peer_hypercube", n, rounds or [_halves(n, at, at)])


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
    draws = [rng.permutation(n).reshape(-1, 2).T for _ in range(period)]
    return checked("random_matching", n, [_pairs(n, a, b) for a, b in draws])


def shift_one(n: int) -> Topology:
    """The lower half of the workers walks along the upper half.

    Args:
      n: number of workers, even, 4096 at most; else a ValueError.
    """
    _require_even("shift_one", n, ALL_PAIRS)
    half = n // 2
    lower = np.arange(half)
    steps = [_pairs(n, lower, (t + lower) % half + half) for t in range(half)]
    return checked("shift_one", n, steps)


def _pairs(n: int, a: np.ndarray, b: np.ndarray) -> Links:
    """Each worker of a and the one at its place in b take their mean."""
    return _halves(n, np.concatenate([a, b]), np.concatenate([b, a]))


def _halves(n: int, targets: np.ndarray, sources: np.ndarray) -> Links:
    """Each target keeps half of its own, and takes half of its source's."""
    both = np.concatenate([targets, targets]), np.concatenate([targets, sources])
    return summed(n, *both, 0.5)


def _require_even(name: str, n: int, among: Range = WORKERS) -> None:
    require_whole(name, "n", n, broken=among.broken)
    if n % 2:
        raise ValueError(
            f"{name}: n={n} must be even, as all workers are paired; for odd numbers "
            "use one_peer_exponential(n) or base_graph(n)"
        )
