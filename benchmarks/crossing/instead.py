"""What works where a transformation is refused: a cell of the table that is equal.

A refusal is known by words of its message. What works instead is the same row in
another place, or another row in the same place, and the user's line.
"""

from typing import NamedTuple


class Instead(NamedTuple):
    """A way out.

    Attributes:
      words: what the refusal says.
      why: the reason, in a few words.
      line: what to write.
      place: where the same row is equal; None for the same place.
      rows: pairs of a refused row and one that is equal; empty for the same row.
    """

    words: str
    why: str
    line: str
    place: str | None = None
    rows: tuple[tuple[str, str], ...] = ()


WAYS = [
    Instead(
        "has only a slice of each leaf",
        "An element's update depends on other elements, or random numbers are drawn, "
        "and a worker has a slice of each leaf",
        '`optax.chain(all_reduce("data"), optimizer)`, with whole params everywhere',
        place="all_reduce",
        rows=(("monitor", "snapshot"), ("measure_with_ema", "snapshot")),
    ),
    Instead(
        "it looks at shapes or at paths",
        "A function of the params chooses leaves by their shape, and a slice is flat",
        "the mask or the labels as a tree, made of whole params",
        rows=(
            ("adamw, decay of matrices", "adamw, decay of matrices, as a tree"),
            ("partition", "partition, labels as a tree"),
            ("multi_transform", "partition, labels as a tree"),
            ("masked", "partition, labels as a tree"),
        ),
    ),
    Instead(
        "and is now absent",
        "The params of `optax.lookahead` are pairs, and a server has slices of one",
        '`optax.chain(all_reduce("data"), optax.lookahead(...))`',
        place="all_reduce",
    ),
    Instead(
        "was absent and is now",
        "The state of `optax.monitor` has no leaf for the measurement before the first "
        "step, so that the step changes its structure",
        "`optax.snapshot`",
        rows=(("monitor", "snapshot"), ("measure_with_ema", "snapshot")),
    ),
    Instead(
        "the step changed state argument",
        "`nnx.Optimizer` makes other containers of this state's lists in the first "
        "step (flax 0.12)",
        "the step with `nnx.split`, as in the first recipe",
        place="all_reduce",
    ),
]


def instead(words: str) -> Instead | None:
    """What works where a message has these words."""
    return next((way for way in WAYS if way.words in words), None)
