"""Links of a graph, sorted into permutations.

Source: König 1916: the edges of a bipartite graph (senders, receivers) take as many
colors as its largest degree. Each link takes a color that is free at both its ends; if
no color is, a chain of two alternating colors is swapped first.

Links are taken in the order of their shifts, so that a circulant graph falls into its
shifts.

Cost: at most O(links * n).
"""

import numpy as np

from relaxjax.topology._links import Links


def colored(n: int, links: Links) -> list[tuple[tuple[int, int], ...]]:
    """The links between n workers, none to itself, as sets of pairs (source, target).

    A worker is at most once a source and once a target in each set; there are as many
    sets as the busiest worker has messages.
    """
    targets, sources = links.targets, links.sources
    busiest = (np.bincount(ends, minlength=n).max() for ends in (targets, sources))
    degree = int(max(busiest))
    to = np.full((n, degree), -1)  # the target of each source, by color
    of = np.full((n, degree), -1)  # the source of each target, by color
    shift = (targets - sources) % n
    for k in np.lexsort((sources, np.minimum(shift, n - shift), shift)):
        _color(int(sources[k]), int(targets[k]), to, of)
    return [
        tuple((int(s), int(to[s, color])) for s in np.nonzero(to[:, color] >= 0)[0])
        for color in range(degree)
    ]


def _color(source: int, target: int, to: np.ndarray, of: np.ndarray) -> None:
    """Gives the link a color; others may change theirs."""
    free_to, free_of = to[source] < 0, of[target] < 0
    if (free_to & free_of).any():
        color = int((free_to & free_of).argmax())
    else:
        color = int(free_to.argmax())
        _swap(target, color, int(free_of.argmax()), to, of)
    to[source, color], of[target, color] = target, source


def _swap(target: int, a: int, b: int, to: np.ndarray, of: np.ndarray) -> None:
    """Swaps the colors of the chain a, b, a .. that starts at a target without b.

    The chain enters senders by a and leaves them by b; it never reaches the source that
    needs a, as that source has no link of color a.
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
