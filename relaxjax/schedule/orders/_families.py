"""Families of random graphs on which orders are compared.

Times are whole numbers from 1 to 20 seconds, so that every sum is exact.

    random   each operation needs 1 to 3 recvs, and sometimes an earlier operation
    towers   chains of layers side by side, joined at the end (series-parallel)
    pairs    each operation needs two recvs, so that every recv is shared
    chain    one layer after the other

Cost: O(n).
"""

import random
from collections.abc import Callable

from relaxjax._core.foreign._fields import check_count
from relaxjax.schedule.graphs._graph import Graph

Ops = dict[str, tuple[float, list[str]]]


def random_graph(family: str, *, recvs: int = 12, seed: int = 0) -> Graph:
    """A random graph of a family, with random times.

    Args:
      family: "random", "towers", "pairs" or "chain".
      recvs: number of parameters, at least 2.
      seed: the same seed gives the same graph.

    Raises:
      ValueError: an unknown family or too few recvs.

    Example:
      >>> graph = random_graph("chain", recvs=3)
      >>> [needs for _, needs in graph.ops.values()]
      [('r0',), ('o0', 'r1'), ('o1', 'r2')]
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {sorted(FAMILIES)}, got {family!r}")
    check_count("recvs", recvs, least=2)
    rng = random.Random(f"{family} {recvs} {seed}")
    names = [f"r{i}" for i in range(recvs)]
    times = {name: float(rng.randint(1, 20)) for name in names}
    return Graph(recvs=times, ops=FAMILIES[family](names, rng))


def _seconds(rng: random.Random) -> float:
    return float(rng.randint(1, 20))


def _random(names: list[str], rng: random.Random) -> Ops:
    ops: Ops = {}
    for i in range(rng.randint(len(names), 2 * len(names))):
        needs = rng.sample(names, rng.randint(1, min(3, len(names))))
        if ops and rng.random() < 0.3:
            needs.append(rng.choice(list(ops)))
        ops[f"o{i}"] = (_seconds(rng), needs)
    return ops


def _towers(names: list[str], rng: random.Random) -> Ops:
    ops: Ops = {}
    height = rng.randint(2, 4)
    tops = []
    for i, name in enumerate(names):
        below = [f"o{i - 1}"] if i % height else []
        ops[f"o{i}"] = (_seconds(rng), [name, *below])
        if i % height == height - 1 or name == names[-1]:
            tops.append(f"o{i}")
    return ops | {"join": (_seconds(rng), tops)}


def _pairs(names: list[str], rng: random.Random) -> Ops:
    return {
        f"o{i}": (_seconds(rng), [name, rng.choice([n for n in names if n != name])])
        for i, name in enumerate(names)
    }


def _chain(names: list[str], rng: random.Random) -> Ops:
    return {
        f"o{i}": (_seconds(rng), [*([f"o{i - 1}"] if i else []), name])
        for i, name in enumerate(names)
    }


FAMILIES: dict[str, Callable[[list[str], random.Random], Ops]] = {
    "random": _random,
    "towers": _towers,
    "pairs": _pairs,
    "chain": _chain,
}
"""The operations of each family, from the names of its recvs."""
