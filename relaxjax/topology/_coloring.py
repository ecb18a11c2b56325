"""Links of a graph, sorted into permutations.

Source: König 1916: the edges of a bipartite graph (senders, receivers) take as many
colors as its largest degree. Each link takes a color that is free at both its ends; if
there is none, a chain of two alternating colors is swapped first.

Links are taken by their shift, so that a circulant graph falls into its shifts.

Cost: O(links * n) at most.
"""

import numpy as np


def colored(links: np.ndarray) -> list[tuple[tuple[int, int], ...]]:
    """Sets of pairs (source, target), in each of which a worker comes once at most.

    Args:
      links: bool[n, n]; (i, j) says that i hears j.

    Returns:
      As many sets as the most messages that a worker sends or receives.
    """
    n = len(links)
    degree = int(max(links.sum(axis=0).max(), links.sum(axis=1).max(), 0))
    to = np.full((n, degree), -1)  # whom a source sends to, by color
    of = np.full((n, degree), -1)  # whom a target hears, by color
    targets, sources = np.nonzero(links)
    shift = (targets - sources) % n
    for k in np.lexsort((sources, np.minimum(shift, n - shift), shift)):
        _color(int(sources[k]), int(targets[k]), to, of)
    return [
        tuple((int(s), int(to[s, color])) for s in np.nonzero(to[:, color] >= 0)[0])
        for color in range(degree)
    ]


def _color(source: int, target: int, to: np.ndarray, of: np.ndarray) -> None:
    """Gives the link a color; others may change theirs."""
    both = np.nonzero((to[source] < 0) & (of[target] < 0))[0]
    if len(both):
        color = int(both[0])
    else:
        color = int(np.nonzero(to[source] < 0)[0][0])
        _swap(target, color, int(np.nonzero(of[target] < 0)[0][0]), to, of)
    to[source, color], of[target, color] = target, source


def _swap(target: int, a: int, b: int, to: np.ndarray, of: np.ndarray) -> None:
    """Swaps the colors of the chain a, b, a .. that starts at a target without b.

    Senders are reached by a and left by b, and the source that needs a has no a: the
    chain never gets there.
    """
    chain, at, color, side = [], target, a, of
    while side[at, color] >= 0:
        other = int(side[at, color])
        chain.append((other, at, color) if side is of else (at, other, color))
        at, color, side = other, (b if color == a else a), (to if side is of else of)
    for s, t, color in chain:
        to[s, color], of[t, color] = -1, -1
    for s, t, color in chain:
        other = b if color == a else a
        to[s, other], of[t, other] = t, s
