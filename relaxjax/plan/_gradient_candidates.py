"""Candidates that average gradients: whole, in codes, partly in codes, in low rank."""

import functools
from collections.abc import Iterator
from typing import Any

from relaxjax._core._relaxation import Relaxation
from relaxjax.compression import COMPRESSORS, expression
from relaxjax.plan._candidate import MERGE, Candidate, in_codes, line
from relaxjax.plan._messages import low_rank, makes_smaller, reduced
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._traffic import EXCHANGES, payload
from relaxjax.plan.forms._payload_sizes import compressor_named

_SIXTEEN = ("bf16", "fp16")
_PARTLY, _SHARES = ("quantize8", "quantize4", "sign"), (0.25, 0.5, 0.75)
_COARSE = 0.7
"""A compressor whose contraction delta is below this gets error feedback."""
_UNKNOWN = ("codebook4", "codebook2", "threshold")
"""Coarse as well, but their laws state no contraction."""


def averaged(row: Relaxation, network: Network) -> Iterator[Candidate]:
    """The mean of all gradients; with variants, by each algorithm and in each code."""
    algorithm = row.sends.algorithm
    yield Candidate(
        relaxation=row.name,
        messages=reduced(algorithm),
        tx=line(row),
        anywhere=algorithm == "psum",
        why=row.sends.why,
    )
    if not row.sends.variants:
        return
    several = network.workers > 1
    for name in EXCHANGES if several else ():
        yield _exact(row, name)
    for name in COMPRESSORS:
        if name != "identity":
            yield from _coded(row, name)
    for name in _PARTLY if several else ():
        yield from _partly_coded(row, name)


def _exact(row: Relaxation, algorithm: str) -> Candidate:
    axes = 2 if algorithm == "hierarchical" else 1
    return Candidate(
        relaxation=f"{row.name}@{algorithm}",
        messages=reduced(algorithm),
        tx=line(row, axes=axes, algorithm=f'"{algorithm}"'),
        axes=axes,
        why=f"everything, every step, by {algorithm.replace('_', ' ')}",
    )


def _coded(row: Relaxation, name: str) -> Iterator[Candidate]:
    """In codes by the compressor's own algorithm, by two shots, and over hosts."""
    compressor, feedback = compressor_named(name), _feedback(name)
    size = payload(name)
    routes = dict.fromkeys((compressor.algorithm, "two_shot", "hierarchical"))
    if name in _SIXTEEN:
        routes["ring"] = None
    for algorithm in routes:
        axes = 2 if algorithm == "hierarchical" else 1
        yield Candidate(
            messages=reduced(algorithm, size),
            tx=in_codes(row, axes=axes, **_keywords(name, feedback, algorithm)),
            axes=axes,
            why="gradients travel in codes"
            + (", and what those lose is sent later" if feedback else ""),
            **_named(row, name, feedback, algorithm),
        )


def _partly_coded(row: Relaxation, name: str) -> Iterator[Candidate]:
    """In codes, but for what the backward pass may hide."""
    size, feedback = payload(name), _feedback(name)
    for plain in _SHARES:
        yield Candidate(
            messages=reduced("two_shot", size, plain),
            tx=in_codes(
                row, axes=1, **_keywords(name, feedback, "two_shot"), plain=str(plain)
            ).replace(MERGE, ""),
            options={"plain": plain},
            fits=functools.partial(_splits, plain),
            why=f"the first {plain:.0%} as they are behind the backward pass, "
            "the rest in codes",
            **_named(row, name, feedback, "two_shot"),
        )


def _named(row: Relaxation, name: str, feedback: str, algorithm: str) -> dict[str, Any]:
    """What a candidate's compressor and algorithm make of its name and memory."""
    compressor = f"{name}+{feedback}" if feedback else name
    return {
        "relaxation": f"{row.name}+{compressor}@{algorithm}",
        "compressor": compressor,
        "keeps": float(bool(feedback)),
    }


def _keywords(name: str, feedback: str, algorithm: str) -> dict[str, str]:
    return {"compressor": expression(name, feedback), "algorithm": f'"{algorithm}"'}


def _splits(plain: float, model: Model) -> bool:
    """Whether some of the matrices are coded, and some are not."""
    coded, every = (len(model.leaves_of("matrix", share)) for share in (plain, 0.0))
    return 0 < coded < every


def _feedback(name: str) -> str:
    """Error feedback for a compressor that loses much at once, else ""."""
    delta = compressor_named(name).law.delta
    coarse = delta is not None and 0 < delta(4096) < _COARSE
    return "ef14" if coarse or name in _UNKNOWN else ""


def low_ranks(row: Relaxation, network: Network) -> Iterator[Candidate]:
    """PowerSGD, or ACP-SGD, by rank and bits."""
    del network
    by_turns = row.sends.kind == "low_rank_by_turns"
    how_many = "one message" if by_turns else "two messages"
    for rank in (1, 2, 4, 8):
        for bits in (32, 16, 8):
            whole = bits == 32
            algorithm = "psum" if whole else "two_shot"
            how = {} if whole else {"algorithm": f'"{algorithm}"', "bits": bits}
            yield Candidate(
                relaxation=row.name if whole else f"{row.name}@{algorithm}",
                messages=low_rank(rank, algorithm, bits, by_turns=by_turns),
                fits=functools.partial(makes_smaller, rank),
                buckets=(),
                tx=line(row, rank=rank, **how),
                options={"rank": rank} | ({} if whole else {"bits": bits}),
                anywhere=whole,
                compressor=row.name,
                why=f"matrices as products of rank {rank}, in {how_many}"
                + ("" if whole else f" of {bits} bits"),
            )
