"""Names that options take, and what a shell completes them to."""

from enum import StrEnum

from relaxjax._names import RELAXATIONS
from relaxjax.compression import COMPRESSORS, FEEDBACKS


class TaskName(StrEnum):
    """Tasks that have real data on every machine."""

    DIGITS = "digits"
    CHARS = "chars"


class OrderName(StrEnum):
    """In which order parameters are pulled."""

    TAC = "tac"
    TIC = "tic"
    BEST = "best"
    RANDOM = "random"
    LAYER = "layer"


def relaxations(incomplete: str) -> list[tuple[str, str]]:
    """Names of relaxations that begin so, each with what it does.

    Args:
      incomplete: as typed so far: a name, a name and a compressor, and so on.
    """
    head, plus, rest = incomplete.partition("+")
    row = RELAXATIONS.get(head.partition("@")[0])
    if "@" in incomplete and row:
        before = incomplete.partition("@")[0]
        found = [(f"{before}@{name}", row.summary) for name in row.algorithms]
    elif plus and row and row.compressors:
        codec, second, _ = rest.partition("+")
        tails = [f"{codec}+{name}" for name in FEEDBACKS] if second else COMPRESSORS
        found = [(f"{head}+{tail}", row.summary) for tail in tails]
    else:
        found = [(name, row.summary) for name, row in RELAXATIONS.items()]
    return [(name, help) for name, help in found if name.startswith(incomplete)]
