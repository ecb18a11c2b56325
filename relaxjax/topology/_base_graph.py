"""Base-(k+1) graphs: the exact mean after a few rounds, for any number of workers.

Source: Takezawa et al. 2023 (Beyond Exponential Graph), algorithms 1 to 3; the proof
that follows is of the construction here. Let b = k + 1.

Hyper-hypercube. If n = n_1 n_2 .. n_L with n_l <= b, number the workers by digits in
these bases; in round l those that differ in digit l alone take their mean. The degree
is n_l - 1 <= k, and after L rounds all hold the mean.

Simple base graph. In base b, n = a_1 b^p_1 + .. + a_L b^p_L, a_l in 1 .. k, p_1 > p_2 >
..: groups V_l of a_l b^p_l workers, each of a_l blocks of b^p_l.
 1. Every V_l takes its own mean (a hyper-hypercube), in at most p_1 + 1 rounds.
 2. In round l after these, each of the r_l workers behind V_l is linked to one worker
    of every block of V_l; r_l is smaller than a block. With s = |V_l| / (|V_l| + r_l),
    it keeps 1 - s of its value and takes s / a_l of each of the a_l linked. Before the
    round all of V_l hold one value; after it all later workers, on average, hold the
    mean of V_l and themselves, so by symmetric weights V_l does as well, and so does
    each of its blocks. For l = 1 that is the mean of all; later groups keep it.
 3. The blocks of V_l then take their means, in p_l <= p_1 - l + 1 rounds.
 In all p_1 + 1 + 1 + p_1 <= 2 log_b n + 2 rounds.

Base graph. With n = p q, where all prime factors of p are <= b and none of q's are:
simple base graphs in p groups of q workers, then a hyper-hypercube over the groups. The
shorter of this and the simple base graph is taken.
"""

from collections.abc import Sequence

import numpy as np

from relaxjax._core._checks import require_whole
from relaxjax._core.foreign._ranges import WORKERS
from relaxjax.topology._checked import checked
from relaxjax.topology._links import Links, undirected
from relaxjax.topology._topology import Topology

Edges = list[tuple[int, int, float]]  # worker, worker, weight: undirected, each once


def base_graph(n: int, k: int = 1) -> Topology:
    """Undirected rounds of degree at most k that multiply to the exact mean.

    Args:
      n: number of workers, 1 or more.
      k: largest number of neighbors of a worker in a round, 1 or more.

    Raises:
      ValueError: `n < 1` or `k < 1`.

    Example:
      >>> import relaxjax
      >>> graph = relaxjax.topology.base_graph(6)
      >>> print(graph.period, graph.degree, round(graph.spectral_gap(), 3))
      4 1 1.0
    """
    require_whole("base_graph", "n", n, broken=WORKERS.broken)
    require_whole("base_graph", "k", k)
    rounds = min(_simple(range(n), k + 1), _by_groups(n, k + 1), key=len)
    links = [_links(n, edges) for edges in rounds or [[]]]
    return checked(f"base_graph(k={k})", n, links)


def _links(n: int, edges: Edges) -> Links:
    a, b = np.array([(i, j) for i, j, _ in edges], int).reshape(-1, 2).T
    return undirected(n, a, b, np.array([weight for *_, weight in edges]))


def _factors(n: int, b: int) -> list[int] | None:
    """The fewest factors of n that are each at most b; None if n has larger primes."""
    if n == 1:
        return []
    rests = {f: _factors(n // f, b) for f in range(2, min(b, n) + 1) if n % f == 0}
    products = [[f, *rest] for f, rest in rests.items() if rest is not None]
    return min(products, key=len, default=None)


def _hyper_hypercube(workers: Sequence[int], factors: list[int]) -> list[Edges]:
    rounds, stride = [], 1
    for f in factors:
        edges = [
            (workers[i], workers[i + m * stride], 1 / f)
            for i in range(len(workers))
            for m in range(1, f - i // stride % f)
        ]
        rounds.append(edges)
        stride *= f
    return rounds


def _simple(workers: Sequence[int], b: int) -> list[Edges]:
    """The simple base graph, or a hyper-hypercube where there is one."""
    n = len(workers)
    if (factors := _factors(n, b)) is not None:
        return _hyper_hypercube(workers, factors)
    groups = _groups(workers, b)
    starts = [_hyper_hypercube(g, _factors(len(g), b) or []) for g, _ in groups]
    rounds = _side_by_side(starts)
    later: list[Edges] = [[] for _ in range(len(groups) + 1 + groups[0][1])]
    for number, (group, power) in enumerate(groups):
        block = b**power
        blocks = [group[i : i + block] for i in range(0, len(group), block)]
        behind = [w for g, _ in groups[number + 1 :] for w in g]
        share = len(group) / (len(group) + len(behind)) / len(blocks)
        links = ((w, v[i]) for i, w in enumerate(behind) for v in blocks)
        later[number] += [(w, v, share) for w, v in links]
        if behind:  # the last group holds the mean already
            for v in blocks:
                for t, edges in enumerate(_hyper_hypercube(v, [b] * power)):
                    later[number + 1 + t] += edges
    return rounds + [edges for edges in later if edges]


def _groups(workers: Sequence[int], b: int) -> list[tuple[Sequence[int], int]]:
    """Each V_l with its p_l, by the digits of n in base b, the highest first."""
    n, groups, start = len(workers), [], 0
    for power in range(n.bit_length(), -1, -1):
        if size := n // b**power % b * b**power:
            groups.append((workers[start : start + size], power))
            start += size
    return groups


def _by_groups(n: int, b: int) -> list[Edges]:
    """Simple base graphs in groups of q, then a hyper-hypercube over the p groups."""
    q = n
    for f in range(2, b + 1):
        while q % f == 0:
            q //= f
    p = n // q
    inside = [_simple(range(g * q, (g + 1) * q), b) for g in range(p)]
    across = [_hyper_hypercube(range(i, n, q), _factors(p, b) or []) for i in range(q)]
    return _side_by_side(inside) + _side_by_side(across)


def _side_by_side(graphs: list[list[Edges]]) -> list[Edges]:
    """Rounds of disjoint groups at the same time; the ones done first wait."""
    length = max(map(len, graphs))
    return [
        [edge for rounds in graphs if t < len(rounds) for edge in rounds[t]]
        for t in range(length)
    ]
