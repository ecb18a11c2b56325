"""Which relaxations a plan ranks: a row each, from the tables of names.

Whatever is a row of `relaxjax.compression._rows.COMPRESSORS` or of the table of
topologies is here as well. A row says what is sent (`relaxjax.plan._messages`), how
often, what is kept, and the line of code.
"""

from collections.abc import Iterator

import numpy as np

from relaxjax._core._relaxation import SYNC_EVERY
from relaxjax.plan import _snippet as code
from relaxjax.plan._candidate import Candidate, compressor_named
from relaxjax.plan._gradient_candidates import low_ranks, reducers
from relaxjax.plan._messages import Messages, gossiped, reduced
from relaxjax.plan._network import Network
from relaxjax.plan._traffic import payload
from relaxjax.topology import TOPOLOGIES

LARGEST = 64
"""Workers up to which topologies are made and looked at; of more, degrees are known."""

_DEGREES = {
    "ring": lambda n: min(2, n - 1),
    "one_peer_exponential": lambda n: min(1, n - 1),
    "exponential": lambda n: max(n - 1, 0).bit_length(),
    "complete": lambda n: n - 1,
    "random_matching": lambda n: min(1, n - 1),
}
_GOSSIPED = ("quantize8", "quantize4", "sign")


def candidates(network: Network) -> list[Candidate]:
    """All that can run on these workers.

    Args:
      network: the workers and hosts.
    """
    found = [*reducers(network), *low_ranks(), *_gossips(network), *_seldom()]
    return [c for c in found if c.axes == 1 or network.per_host > 1]


def _gossips(network: Network) -> Iterator[Candidate]:
    if network.workers == 1:
        return
    peers = network.hosts if network.hosts > 1 else network.workers
    axes = 2 if 1 < network.hosts < network.workers else 1
    degrees = degrees_of(peers)
    default = "one_peer_exponential"
    for name, degree in degrees.items():
        head = "gossip" if name == default else f"gossip@{name}"
        yield Candidate(
            relaxation=head,
            messages=gossiped(degree),
            tx=code.gossip(name, peers, axes=axes),
            axes=axes,
            why=f"models to {_counted(degree)}, no sum over all",
        )
    if default in degrees:
        yield Candidate(
            relaxation="combine_then_adapt",
            messages=gossiped(degrees[default], early=True),
            tx=code.gossip(default, peers, axes=axes, method="combine_then_adapt"),
            axes=axes,
            why="models to one neighbour while the gradient is computed",
        )
    ring = degrees_of(network.workers)["ring"]
    for name in _GOSSIPED:
        yield Candidate(
            relaxation=f"gossip+{name}",
            messages=gossiped(ring, payload(compressor_named(name))),
            tx=code.gossip("ring", network.workers, code=name),
            kept=1.0 + ring,
            compressor=name,
            why=f"coded changes of models to {_counted(ring)}",
        )


def _counted(degree: int) -> str:
    return "one neighbour" if degree == 1 else f"{degree} neighbours"


def degrees_of(peers: int) -> dict[str, int]:
    """Neighbours that the busiest peer sends to in a round, by topology.

    Args:
      peers: workers or hosts; above `LARGEST` only some topologies are known.
    """
    if peers > LARGEST:
        return {name: degree(peers) for name, degree in _DEGREES.items()}
    found = {}
    for name, make in TOPOLOGIES.items():
        try:
            matrices = np.asarray(make(peers).matrices)
        except ValueError:
            continue  # not for this number of workers
        links = (matrices != 0) & ~np.eye(peers, dtype=bool)
        found[name] = int(links.sum(axis=1).max())
    return found


def _averaged(compressor: str) -> Messages:
    if not compressor:
        return reduced("psum")
    return reduced("two_shot", payload(compressor_named(compressor)))


def _seldom() -> Iterator[Candidate]:
    """Local steps."""
    rows = {"local_sgd": 1.0, "diloco": 2.0}
    for name, kept in rows.items():
        for every in (SYNC_EVERY, 50):
            options = {} if every == SYNC_EVERY else {"sync_every": every}
            for compressor in ("", "quantize8", "quantize4+ef14", "sign+ef14"):
                bare, _, feedback = compressor.partition("+")
                yield Candidate(
                    relaxation=f"{name}+{compressor}" if compressor else name,
                    messages=_averaged(bare),
                    tx=code.seldom(name, every, bare, feedback),
                    every=every,
                    options=options,
                    kept=kept + bool(feedback),
                    anywhere=not bare,
                    compressor=compressor,
                    why=f"one exchange in {every} steps"
                    + (", in codes" if compressor else ""),
                )
