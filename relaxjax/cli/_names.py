"""Names that options take, and what a shell completes them to."""

from enum import StrEnum

from relaxjax._names import RELAXATIONS
from relaxjax.compression import COMPRESSORS, FEEDBACKS


class TaskName(StrEnum):
    """Tasks that have real data on every machine."""

    DIGITS = "digits"
    CHARS = "chars"


class OrderName(StrEnum):
    """Orders in which parameters are pulled."""

    TAC = "tac"
    TIC = "tic"
    BEST = "best"
    RANDOM = "random"
    LAYER = "layer"


def relaxations(incomplete: str) -> list[tuple[str, str]]:
    """Completions of what is typed of a relaxation's name, each with its summary."""
    head, plus, rest = incomplete.partition("+")
    row = RELAXATIONS.get(head.partition("@")[0])
    if "@" in incomplete and row:
        before = incomplete.partition("@")[0]
        names = [(f"{before}@{name}", row.summary) for name in row.algorithms]
    elif plus and row and row.compressors:
        compressor, second, _ = rest.partition("+")
        pairs = [f"{compressor}+{name}" for name in FEEDBACKS]
        tails = pairs if second else COMPRESSORS
        names = [(f"{head}+{tail}", row.summary) for tail in tails]
    else:
        names = [(name, row.summary) for name, row in RELAXATIONS.items()]
    return [(name, summary) for name, summary in names if name.startswith(incomplete)]
