"""The relaxations that a plan ranks, from the rows of all rooms.

Each row states what it sends (`relaxjax._core._relaxation.Exchange`); its kind and
variants are turned into candidates here, so that a new row, compressor or topology is
ranked like those that are there. A row that states nothing is traced, over one period,
if it has one and is made for the usual optimizer: what has phases has no average step.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from relaxjax._core._relaxation import SYNC_EVERY, Relaxation
from relaxjax._names import RELAXATIONS
from relaxjax.compression import expression
from relaxjax.plan._candidate import (
    BUCKET,
    MERGE,
    Candidate,
    graph,
    line,
    models_in_codes,
)
from relaxjax.plan._gradient_candidates import averaged, low_ranks
from relaxjax.plan._messages import (
    delayed,
    gossiped,
    low_rank,
    makes_smaller,
    of_models,
    reduced,
)
from relaxjax.plan._network import Network
from relaxjax.plan._traced import builds, can_send, floats_kept, traced
from relaxjax.plan._traffic import payload
from relaxjax.topology import TOPOLOGIES

LARGEST = 64
"""Most peers whose topologies are made and looked at; beyond, degrees are known."""

_DEGREES: Mapping[str, Callable[[int], int]] = {
    "ring": lambda n: min(2, n - 1),
    "one_peer_exponential": lambda n: min(1, n - 1),
    "exponential": lambda n: max(n - 1, 0).bit_length(),
    "complete": lambda n: n - 1,
    "random_matching": lambda n: min(1, n - 1),
}
_CODED_GOSSIP = ("quantize8", "quantize4", "sign")
_CODED_MODELS = ("quantize8", "quantize4+ef14", "sign+ef14")
_PERIODS = (SYNC_EVERY, 50)
_RANKS_OF_MODELS = {4: (16,), SYNC_EVERY: (8, 32), 50: (8, 32)}  # by period


def candidates(network: Network, names: Iterable[str] = RELAXATIONS) -> list[Candidate]:
    """Candidates of these rows that can run on these workers and hosts."""
    ranked = []
    for row in map(RELAXATIONS.__getitem__, names):
        for c in _KINDS[row.sends.kind](row, network):
            if c.axes == 2 and network.per_host == 1:
                continue
            messages = delayed(c.messages) if row.sends.early else c.messages
            keeps = c.keeps + floats_kept(row)
            why = c.why or row.summary
            ranked.append(replace(c, messages=messages, keeps=keeps, why=why))
    return ranked


def _gossips(row: Relaxation, network: Network) -> Iterator[Candidate]:
    """Models over a topology; with variants, over each, and in codes over a ring."""
    if network.workers == 1:
        return
    peers = network.hosts if network.hosts > 1 else network.workers
    axes = 2 if 1 < network.hosts < network.workers else 1
    default = row.sends.algorithm
    names = TOPOLOGIES if row.sends.variants else [default]
    for name, degree in degrees_of(peers, names).items():
        yield Candidate(
            relaxation=row.name if name == default else f"{row.name}@{name}",
            messages=gossiped(degree),
            tx=line(row, graph(name, peers), axes=axes),
            axes=axes,
            why=row.sends.why.format(neighbors=_counted(degree)),
        )
    ring = _DEGREES["ring"](network.workers)
    for name in _CODED_GOSSIP if row.sends.variants else ():
        yield Candidate(
            relaxation=f"{row.name}+{name}",
            messages=gossiped(ring, payload(name)),
            tx=line(row, graph("ring", network.workers), compressor=expression(name)),
            keeps=1.0 + ring,
            compressor=name,
            why=f"coded changes of models to {_counted(ring)}",
        )


def _counted(degree: int) -> str:
    return "one neighbor" if degree == 1 else f"{degree} neighbors"


def degrees_of(peers: int, names: Iterable[str] = TOPOLOGIES) -> dict[str, int]:
    """Neighbors that the busiest peer sends to in a round, by topology.

    Topologies that do not exist, or are not known, for so many peers are left out.
    """
    if peers > LARGEST:
        return {name: _DEGREES[name](peers) for name in _DEGREES if name in set(names)}
    degrees = {}
    for name in names:
        try:
            degrees[name] = TOPOLOGIES[name](peers).degree
        except ValueError:
            continue
    return degrees


def _seldom(row: Relaxation, network: Network) -> Iterator[Candidate]:
    """The mean of all models once a period; with variants, by periods and codes."""
    del network
    variants = row.sends.variants
    for every in _PERIODS if variants else (row.period or 1,):
        for compressor in ("", *_CODED_MODELS) if variants else ("",):
            name, _, feedback = compressor.partition("+")
            messages, tx = reduced(row.sends.algorithm), line(row, str(every))
            if name:
                messages = reduced("two_shot", payload(name))
                tx = models_in_codes(row, every, expression(name, feedback))
            yield Candidate(
                relaxation=f"{row.name}+{compressor}" if name else row.name,
                messages=of_models(messages),
                tx=tx,
                every=every,
                options={} if every == row.period else {"sync_every": every},
                keeps=float(bool(feedback)),
                anywhere=not name and row.sends.algorithm == "psum",
                compressor=compressor,
                why=row.sends.why.format(every=every) + (", in codes" if name else ""),
            )
    if variants and {"rank", "bits"} <= row.options:
        for every, ranks in _RANKS_OF_MODELS.items():
            yield from _seldom_in_low_rank(row, every, ranks)


def _seldom_in_low_rank(
    row: Relaxation, every: int, ranks: Iterable[int]
) -> Iterator[Candidate]:
    """The mean of all models once a period, by PowerSGD in 8 bits."""
    for rank in ranks:
        own = f'relaxjax.power_sgd("data", rank={rank}, bits=8, algorithm="two_shot")'
        period = {} if every == row.period else {"sync_every": every}
        yield Candidate(
            relaxation=f"{row.name}@two_shot",
            messages=low_rank(rank, "two_shot", 8),
            fits=functools.partial(makes_smaller, rank),
            buckets=(),
            tx=line(row, str(every), reducer=own).replace(BUCKET, ""),
            every=every,
            options={"rank": rank, "bits": 8, **period},
            keeps=1.0,
            compressor="power_sgd",
            why=row.sends.why.format(every=every) + f", as products of rank {rank}",
        )


def _traced(row: Relaxation, network: Network) -> Iterator[Candidate]:
    """A row that states no messages, by the bytes of its program."""
    usual = row.parent == Relaxation.parent
    large = row.sends.grows and network.workers > LARGEST
    if row.period is None or not usual or large or not builds(row, network.workers):
        return
    how = {"sync_every": row.period} if "sync_every" in row.options else {}
    yield Candidate(
        relaxation=row.name,
        messages=traced(row),
        tx=line(row, **how).replace(MERGE, ""),
        every=row.period,
        fits=lambda model: can_send(row, network.workers, model),
        buckets=("larger",),
        why=row.sends.why,
    )


_KINDS = {
    "gradients": averaged,
    "low_rank": low_ranks,
    "low_rank_by_turns": low_ranks,
    "models": _seldom,
    "neighbors": _gossips,
    "traced": _traced,
}
