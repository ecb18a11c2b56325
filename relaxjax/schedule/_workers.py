"""The workers that are simulated: every one, or representatives of many.

Of a class of n identical workers some stand for several, and four only for themselves:
in every step another one of these is the slowest of all n and another the fastest, by
order statistics (see `_cluster`).

Cost: O(1) per simulated worker.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from relaxjax.schedule._cluster import Cluster, Stragglers, Workers
from relaxjax.schedule._engine import Track

REPRESENTED = 1024
"""Up to so many workers are simulated one by one."""

_EXTREMES = 4
"""Workers of a class that are simulated one by one where not all are."""

Draw = Callable[[int, random.Random], float]
"""From the step to a straggler factor."""


@dataclass
class Worker:
    """A simulated worker, or one that stands for many identical ones.

    Attributes:
        index: its number.
        kind: its class.
        weight: how many workers it stands for.
        compute: its computing unit.
        stretch: draws its straggler factor of a step.
    """

    index: int
    kind: Workers
    weight: int
    compute: Track
    stretch: Callable[[], float]


def make_workers(
    cluster: Cluster, rng: random.Random, *, variety: int = 1
) -> list[Worker]:
    """Every worker, or representatives where there are more than 1024.

    A class of n identical workers is represented by `variety` typical ones, which
    stand for all but four of them, and by those four, spread evenly among the others,
    as a server serves workers in turns. In every step another one of the four is the
    slowest of the class (an order statistic) and another one the fastest.

    Args:
        cluster: the workers.
        rng: source of the straggler factors.
        variety: how many typical ones there are.
    """
    everyone = cluster.size <= REPRESENTED
    shares = [
        (kind, weight, draw)
        for kind in cluster.classes
        for weight, draw in _representatives(
            kind.count, cluster.stragglers, kind.count if everyone else variety
        )
    ]
    return [
        Worker(i, kind, weight, Track(f"worker {i} compute"), _by_step(draw, rng))
        for i, (kind, weight, draw) in enumerate(shares)
    ]


def _by_step(draw: Draw, rng: random.Random) -> Callable[[], float]:
    step = itertools.count()
    return lambda: draw(next(step), rng)


def _representatives(
    n: int, noise: Stragglers, variety: int
) -> Iterator[tuple[int, Draw]]:
    """Weights and draws of the representatives of n workers."""
    if n <= variety + _EXTREMES:
        yield from [(1, lambda step, rng: noise.factor(rng))] * n
        return
    gaps = _EXTREMES - 1
    for i in range(_EXTREMES):
        yield 1, lambda step, rng, i=i: _extreme(noise, n, (step + i) % _EXTREMES, rng)
        # The typical ones of the gap after it; each stands for its share of the rest.
        for k in range(
            i * variety // gaps, (i + 1) * variety // gaps if i < gaps else 0
        ):
            share = (n - _EXTREMES + k) // variety
            yield share, lambda step, rng: noise.typical(rng)


def _extreme(noise: Stragglers, n: int, turn: int, rng: random.Random) -> float:
    """Factor of one of the four: each is the slowest and the fastest in its turn."""
    if turn == 0:
        return noise.slowest(n, rng)
    return noise.fastest(n, rng) if turn == 2 else noise.factor(rng)
