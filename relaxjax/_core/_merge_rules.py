"""What a field of a state is, and how it merges when the number of workers changes.

A mark stands in the annotation of a field, so that a state reads like a table:

    class EF21State(NamedTuple):
        known: Annotated[jax.Array, MEAN]
        mean: Annotated[jax.Array, MEAN]

It says nothing about where arrays lie, and nothing while the number of workers stays.
Of n workers' rows r_1 .. r_n, each of n' workers is given:

    EQUAL     r_1, which all others must be, to the bit
    MEAN      (1/n) sum_i r_i, exactly r where all are r
    SUM       (1/n') sum_i r_i: the total stays
    SHARD     its slice of all slices, put together and cut anew
    RESET     what the transformation's `init` gives
    rebuild   what a function of the state makes of it

What has no mark: floating leaves merge by MEAN, others must be EQUAL, and typed PRNG
keys stay with their workers. A mark on a field that holds other states says what
becomes of amounts in them: what is marked MEAN in there, or is a float without a mark.
"""

from collections.abc import Callable
from typing import (
    Annotated,
    Any,
    ForwardRef,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

import jax.numpy as jnp
import numpy as np


class Leaf(NamedTuple):
    """An array of a state that is being merged.

    Attributes:
      name: for errors.
      path: within its state: the field's name, and what follows after slashes.
      saved: `saved(path)` gives an array [n, ...] of the state, of the old workers.
      made: `made(path)` gives one [n', ...], of the new workers, as of `init`.
      node: the state as `init` made it, for what it holds beside arrays.
    """

    name: str
    path: str
    saved: Callable[[str], np.ndarray]
    made: Callable[[str], np.ndarray]
    node: Any

    @property
    def rows(self) -> np.ndarray:
        """Of the old workers, [n, ...]."""
        return self.saved(self.path)

    @property
    def fresh(self) -> np.ndarray:
        """Of the new workers, as `init` made it: [n', ...]."""
        return self.made(self.path)

    @property
    def inside(self) -> str:
        """The path without the field's name."""
        return self.path.partition("/")[2]

    def beside(self, field: str) -> "Leaf":
        """The array at this place in another field of the state."""
        return self._replace(path=f"{field}/{self.inside}" if self.inside else field)


Merge = Callable[[Leaf, np.ndarray], np.ndarray]
"""From a leaf and the old workers' rows [n, ...] to the new workers', [n', ...]."""


class MergeRule(NamedTuple):
    """How a field merges.

    Attributes:
      name: as in tables and reports.
      merge: the rule of an amount; None: it is none, or cannot merge.
      rebuilt: `rebuilt(leaf, merge)`, of what is no amount; `merge` is what amounts at
        this place merge by.
      reason: why it cannot merge, and what to do.
    """

    name: str
    merge: Merge | None = None
    rebuilt: Callable[[Leaf, Merge], np.ndarray] | None = None
    reason: str = ""


Mark = MergeRule
"""The name until 0.2."""


def all_alike(rows: np.ndarray) -> bool:
    """Whether all rows are the same, bit by bit: -0.0 is not 0.0, a NaN is itself."""
    first, *others = (row.tobytes() for row in rows)
    return all(other == first for other in others)


def given_to_all(row: np.ndarray, leaf: Leaf) -> np.ndarray:
    """The same row for each of the new workers."""
    return np.broadcast_to(row, (len(leaf.fresh), *row.shape))


def mean_of(rows: np.ndarray) -> np.ndarray:
    """The mean over the rows; exactly the row where all are alike."""
    if all_alike(rows):
        return rows[0]
    y = rows.astype(_widest(rows.dtype))
    return (y[0] + np.mean(y - y[:1], axis=0)).astype(rows.dtype)


def _equal(leaf: Leaf, merge: Merge) -> np.ndarray:
    del merge
    rows = leaf.rows
    if not all_alike(rows):
        other = next(i for i in range(len(rows)) if not all_alike(rows[[0, i]]))
        raise ValueError(
            f"resize: {leaf.name!r} should be the same on all workers and is not: "
            f"worker 0 has {_brief(rows[0])}, worker {other} has {_brief(rows[other])}"
            ". Resume on the old number of workers; or if it is meant to differ, mark "
            "the field of its state, as in Annotated[jax.Array, "
            "relaxjax.checkpoint.RESET]"
        )
    return given_to_all(rows[0], leaf)


def _mean(leaf: Leaf, rows: np.ndarray) -> np.ndarray:
    return given_to_all(mean_of(rows), leaf)


def _sum(leaf: Leaf, rows: np.ndarray) -> np.ndarray:
    total = np.sum(rows.astype(_widest(rows.dtype)), axis=0)
    share = total / len(leaf.fresh)
    return given_to_all(share.astype(rows.dtype), leaf)


def _shard(leaf: Leaf, rows: np.ndarray) -> np.ndarray:
    return resliced(leaf, rows, len(rows), len(leaf.fresh))


def resliced(leaf: Leaf, rows: np.ndarray, before: int, now: int) -> np.ndarray:
    """The first `before` slices [n, c], put together and cut in `now` for n' workers.

    Worker i has slice i mod `now`. What has no width is no slice, and merges by MEAN.
    """
    if rows.ndim != 2:
        return _mean(leaf, rows)
    width = leaf.fresh.shape[1]
    flat = np.zeros(now * width, rows.dtype)
    found = rows[:before].ravel()[: flat.size]
    flat[: found.size] = found
    return flat.reshape(now, width)[np.arange(len(leaf.fresh)) % now]


def _widest(dtype: np.dtype) -> type:
    return np.complex128 if jnp.issubdtype(dtype, jnp.complexfloating) else np.float64


def _brief(row: np.ndarray) -> str:
    return f"{row}" if row.size <= 4 else f"{row.ravel()[:4]} .."


EQUAL = MergeRule("equal", rebuilt=_equal)
MEAN = MergeRule("mean", _mean)
SUM = MergeRule("sum", _sum)
SHARD = MergeRule("shard", _shard)
RESET = MergeRule("reset", rebuilt=lambda leaf, merge: leaf.fresh)


def rebuild(rule: Callable[[Leaf, Merge], np.ndarray]) -> MergeRule:
    """A mark for what only a function of the whole state can merge.

    Args:
      rule: from a leaf, and how amounts merge here, to rows [n', ...].
    """
    return MergeRule("rebuild", rebuilt=rule)


def refuse(reason: str) -> MergeRule:
    """A mark for what cannot be right on another number of workers.

    Args:
      reason: a sentence that says why, and another that says what to do.
    """
    return MergeRule("refuse", reason=reason)


def marks_of(kind: type) -> dict[str, MergeRule]:
    """The marked fields of a state's class.

    Args:
      kind: a NamedTuple or a dataclass; of any other class nothing is marked.
    """
    hints = getattr(kind, "__annotations__", {})
    if any("Annotated" in repr(x) for x in hints.values() if _is_text(x)):
        hints = get_type_hints(kind, include_extras=True)
    found = {
        field: [x for x in get_args(hint)[1:] if isinstance(x, MergeRule)]
        for field, hint in hints.items()
        if get_origin(hint) is Annotated
    }
    return {field: marks[0] for field, marks in found.items() if marks}


def _is_text(hint: Any) -> bool:
    """Whether an annotation waits to be evaluated; others' classes may have some."""
    return isinstance(hint, str | ForwardRef)
