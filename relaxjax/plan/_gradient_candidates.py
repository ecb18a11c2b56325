"""Candidates that average gradients: whole, in codes, partly in codes, in low rank."""

import functools
from collections.abc import Iterator

import jax

from relaxjax.compression import COMPRESSORS, Compressor
from relaxjax.plan import _snippet as code
from relaxjax.plan._candidate import Candidate, compressor_named
from relaxjax.plan._messages import delayed, low_rank, makes_smaller, reduced
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._traffic import EXCHANGES, payload

_SIXTEEN = ("bf16", "fp16")
_PARTLY, _SHARES = ("quantize8", "quantize4", "sign"), (0.25, 0.5, 0.75)
_COARSE = 0.7
"""Of a contraction that leaves less than so much of a value, the loss is fed back."""
_UNKNOWN = ("codebook4", "codebook2", "threshold")
"""Coarse as well, with a law that says nothing."""


def reducers(network: Network) -> Iterator[Candidate]:
    """Rows whose workers all have the same params.

    Args:
      network: the workers and hosts.
    """
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
        messages=delayed(reduced("psum")),
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
            yield from _coded(name, compressor_named(name))
    for name in _PARTLY if network.workers > 1 else ():
        yield from _partly(name, compressor_named(name))


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
    coded, all_of_them = (
        len(jax.tree.leaves(model.part("matrix", share))) for share in (plain, 0.0)
    )
    return 0 < coded < all_of_them


def _fed_back(name: str) -> str:
    """With feedback, where a compressor loses much in one go."""
    delta = compressor_named(name).law.delta
    coarse = delta is not None and 0 < delta(4096) < _COARSE
    return f"{name}+ef14" if coarse or name in _UNKNOWN else name


def low_ranks() -> Iterator[Candidate]:
    """Rows of PowerSGD."""
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
