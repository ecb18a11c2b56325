"""Which relaxations a plan ranks: a row each, from the tables of names.

Whatever is a row of `relaxjax._rows.COMPRESSORS` or of the table of topologies is here
as well. A row says what is sent (`relaxjax.plan._messages`), how often, what is kept,
and the line of code.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import jax
import numpy as np

from relaxjax._gossip_rows import TOPOLOGIES
from relaxjax._relaxation import SYNC_EVERY
from relaxjax._rows import COMPRESSORS
from relaxjax.compression import Compressor
from relaxjax.plan import _code as code
from relaxjax.plan._messages import (
    Messages,
    low_rank,
    makes_smaller,
    reduced,
    told,
    waited,
)
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._traffic import EXCHANGES, payload

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
_SIXTEEN = ("bf16", "fp16")
_PARTLY, _SHARES = ("quantize8", "quantize4", "sign"), (0.25, 0.5, 0.75)
_COARSE = 0.7
"""Of a contraction that leaves less than so much of a value, the loss is fed back."""
_UNKNOWN = ("codebook4", "codebook2", "threshold")
"""Coarse as well, with a law that says nothing."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A relaxation that a plan may choose.

    Attributes:
      relaxation: its name, as everywhere.
      messages: of one exchange.
      tx: the line of code.
      every: steps from one exchange to the next.
      kept: floats for each param that it keeps besides the optimizer.
      compressor: as names spell it, or "".
      options: beyond the name, as `relaxjax train` has them.
      axes: how many axes it needs: 2 are hosts and their workers.
      anywhere: whether it needs one axis and takes two.
      why: in one sentence, what it does about the network.
      fits: whether it does anything for a model.
    """

    relaxation: str
    messages: Messages
    tx: str
    why: str
    every: int = 1
    kept: float = 0.0
    compressor: str = ""
    options: Mapping[str, float] = field(default_factory=dict)
    axes: int = 1
    anywhere: bool = False
    fits: Callable[[Model], bool] = lambda _: True

    @property
    def label(self) -> str:
        """The name and the options."""
        options = "".join(f" {k}={v:g}" for k, v in self.options.items())
        return self.relaxation + options


def candidates(network: Network) -> list[Candidate]:
    """All that can run on these workers.

    Args:
      network: the workers and hosts.
    """
    found = [*_reducers(network), *_low_ranks(), *_gossips(network), *_seldom()]
    return [c for c in found if c.axes == 1 or network.per_host > 1]


@functools.cache
def _made(name: str) -> Compressor:
    """One of each, so that its payloads are looked at once."""
    return COMPRESSORS[name]()


def _reducers(network: Network) -> Iterator[Candidate]:
    yield Candidate(
        relaxation="all_reduce",
        messages=reduced("psum"),
        tx=code.all_reduce(),
        anywhere=True,
        why="everything, every step, by the backend's own all-reduce",
    )
    for algorithm in EXCHANGES if network.workers > 1 else ():
        yield _exact(algorithm, axes=1 + (algorithm == "hierarchical"))
    yield Candidate(
        relaxation="delay",
        messages=waited(reduced("psum")),
        tx=code.delayed(),
        kept=1,
        anywhere=True,
        why="gradients of the step before travel behind a whole step",
    )
    yield Candidate(
        relaxation="parameter_server",
        messages=reduced("two_shot"),
        tx=code.parameter_server(),
        why="each worker is the server of a slice, and holds its optimizer state alone",
    )
    for name in COMPRESSORS:
        if name != "identity":
            yield from _coded(name, _made(name))
    for name in _PARTLY if network.workers > 1 else ():
        yield from _partly(name, _made(name))


def _exact(algorithm: str, axes: int = 1) -> Candidate:
    return Candidate(
        relaxation=f"all_reduce@{algorithm}",
        messages=reduced(algorithm),
        tx=code.all_reduce(algorithm=algorithm, axes=axes),
        axes=axes,
        why=f"everything, every step, by {algorithm.replace('_', ' ')}",
    )


def _coded(name: str, compressor: Compressor) -> Iterator[Candidate]:
    """By the compressor's own exchange, two shots, and over hosts."""
    wrapped = _fed_back(name)
    feedback = "" if wrapped == name else "ef14"
    size = payload(compressor)
    share = size.of(4096) / (4 * 4096)
    routes = dict.fromkeys((compressor.algorithm, "two_shot", "hierarchical"))
    if name in _SIXTEEN:
        routes["ring"] = None
    for algorithm in routes:
        axes = 2 if algorithm == "hierarchical" else 1
        yield Candidate(
            relaxation=f"all_reduce+{wrapped}@{algorithm}",
            messages=reduced(algorithm, size),
            tx=code.all_reduce(name, feedback, algorithm, axes),
            kept=1.0 if feedback else 0.0,
            compressor=wrapped,
            axes=axes,
            why=f"payloads of {share:.3g} of the bytes"
            + (", what they lose is sent later" if feedback else ""),
        )


def _partly(name: str, compressor: Compressor) -> Iterator[Candidate]:
    """What the backward pass may hide travels as it is."""
    wrapped = _fed_back(name)
    feedback = "" if wrapped == name else "ef14"
    for plain in _SHARES:
        yield Candidate(
            relaxation=f"all_reduce+{wrapped}@two_shot",
            messages=reduced("two_shot", payload(compressor), plain),
            tx=code.partly(name, feedback, "two_shot", plain),
            kept=1.0 if feedback else 0.0,
            compressor=wrapped,
            options={"plain": plain},
            fits=functools.partial(_splits, plain),
            why=f"the first {plain:.0%} as they are behind the backward pass, "
            "the rest in codes",
        )


def _splits(plain: float, model: Model) -> bool:
    """Whether there are matrices that are coded, and others that are not."""
    coded = [len(jax.tree.leaves(model.part(True, share))) for share in (0.0, plain)]
    return 0 < coded[1] < coded[0]


def _fed_back(name: str) -> str:
    """With feedback, where a compressor loses much in one go."""
    delta = _made(name).law.delta
    coarse = delta is not None and 0 < delta(4096) < _COARSE
    return f"{name}+ef14" if coarse or name in _UNKNOWN else name


def _low_ranks() -> Iterator[Candidate]:
    for rank in (1, 2, 4, 8):
        for bits in (32, 16, 8):
            algorithm = "psum" if bits == 32 else "two_shot"
            by = {} if bits == 32 else {"bits": bits}
            yield Candidate(
                relaxation="power_sgd" + ("" if bits == 32 else f"@{algorithm}"),
                messages=low_rank(rank, algorithm, bits),
                fits=functools.partial(makes_smaller, rank),
                tx=code.power_sgd(rank, "" if bits == 32 else algorithm, bits),
                options={"rank": rank, **by},
                kept=1.0,
                anywhere=bits == 32,
                compressor="power_sgd",
                why=f"matrices as products of rank {rank}, in two messages"
                + (f" of {bits} bits" if by else ""),
            )


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
            messages=told(degree),
            tx=code.gossip(name, peers, axes=axes),
            axes=axes,
            why=f"models to {_counted(degree)}, no sum over all",
        )
    if default in degrees:
        yield Candidate(
            relaxation="combine_then_adapt",
            messages=told(degrees[default], early=True),
            tx=code.gossip(default, peers, axes=axes, method="combine_then_adapt"),
            axes=axes,
            why="models to one neighbour while the gradient is computed",
        )
    ring = degrees_of(network.workers)["ring"]
    for name in _GOSSIPED:
        yield Candidate(
            relaxation=f"gossip+{name}",
            messages=told(ring, payload(_made(name))),
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


def _seldom() -> Iterator[Candidate]:
    """Local steps."""
    rows = {"local_sgd": 1.0, "diloco": 2.0}
    for name, kept in rows.items():
        for every in (SYNC_EVERY, 50):
            options = {} if every == SYNC_EVERY else {"sync_every": every}
            for compressor in ("", "quantize8", "quantize4+ef14", "sign+ef14"):
                bare, _, feedback = compressor.partition("+")
                made = _made(bare) if bare else None
                yield Candidate(
                    relaxation=f"{name}+{compressor}" if compressor else name,
                    messages=reduced("two_shot" if bare else "psum", payload(made)),
                    tx=code.seldom(name, every, bare, feedback),
                    every=every,
                    options=options,
                    kept=kept + bool(feedback),
                    anywhere=not bare,
                    compressor=compressor,
                    why=f"one exchange in {every} steps"
                    + (", in codes" if compressor else ""),
                )
