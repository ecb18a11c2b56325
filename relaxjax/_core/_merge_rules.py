"""How the fields of a state merge when the number of workers changes.

A rule stands in the annotation of a field, so that a state reads like a table:

    class EF21State(NamedTuple):
        known: Annotated[jax.Array, MEAN]
        mean: Annotated[jax.Array, MEAN]

It says nothing about where arrays lie, and nothing while the number of workers stays.
From the rows r_1 .. r_n of n workers, each of n' workers gets:

    EQUAL     r_1, which all others must equal, to the bit
    MEAN      (1/n) sum_i r_i, exactly r where all are r
    SUM       (1/n') sum_i r_i: the total stays
    SHARD     its slice of all slices, joined and cut anew
    RESET     what the transformation's `init` gives
    rebuild   what a function of the state returns

Without a rule, floating leaves merge by MEAN, others must be EQUAL, and typed PRNG keys
stay with their workers. A rule on a field that holds other states is the rule of the
amounts in them: fields that are marked MEAN there, and floats without a rule.
"""

import inspect
from collections.abc import Callable
from types import UnionType
from typing import (
    Any,
    ForwardRef,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import jax.numpy as jnp
import numpy as np


class Leaf(NamedTuple):
    """An array of a state that is being merged.

    Attributes:
      name: name of the leaf, for errors.
      path: its path within its state: the field's name, and what follows a slash.
      saved: `saved(path)` returns an array of the state of the old workers, [n, ...].
      made: `made(path)` returns an array of the state that `init` made for the new
        workers, [n', ...].
      node: the state as `init` made it, for what it holds beside arrays.
      slices: number of slices of an array that lies in slices, before and now; else 1.
    """

    name: str
    path: str
    saved: Callable[[str], np.ndarray]
    made: Callable[[str], np.ndarray]
    node: Any
    slices: tuple[int, ...] = (1, 1)

    @property
    def copies(self) -> tuple[int, int]:
        """Number of copies of the whole array, before and now: workers, or islands."""
        before, now = self.slices
        return len(self.rows) // before, len(self.fresh) // now

    @property
    def rows(self) -> np.ndarray:
        """This array of the old workers, [n, ...]."""
        return self.saved(self.path)

    @property
    def fresh(self) -> np.ndarray:
        """This array of the new workers, as `init` made it, [n', ...]."""
        return self.made(self.path)

    @property
    def inside(self) -> str:
        """The path without the field's name."""
        return self.path.partition("/")[2]

    def of_each(self, slices: int) -> list["Leaf"]:
        """The arrays that the copies of each slice have."""

        def one(i: int) -> "Leaf":
            return self._replace(
                saved=lambda path: self.saved(path)[i::slices],
                made=lambda path: self.made(path)[i::slices],
                slices=(1, 1),
            )

        return [one(i) for i in range(slices)]

    def beside(self, field: str) -> "Leaf":
        """The array at the same place in another field of the state."""
        return self._replace(path=f"{field}/{self.inside}" if self.inside else field)


Merge = Callable[[Leaf, np.ndarray], np.ndarray]
"""From a leaf and the old workers' rows [n, ...] to the new workers', [n', ...]."""


class MergeRule(NamedTuple):
    """How a field merges.

    Attributes:
      name: name of the rule in tables and reports.
      merge: how an amount merges; None: the field is not an amount, or cannot merge.
      rebuilt: `rebuilt(leaf, merge)` returns the new rows of a field that is not an
        amount; amounts at this place merge by `merge`.
      reason: why the field cannot merge, and what to do.
      slices: `slices(state)`, number of slices and whole shape, of a field whose rows
        are slices: the whole merges, by the rule of what holds the state.
    """

    name: str
    merge: Merge | None = None
    rebuilt: Callable[[Leaf, Merge], np.ndarray] | None = None
    reason: str = ""
    slices: Callable[[Any], tuple[int, tuple[int, ...]]] | None = None


def all_alike(rows: np.ndarray) -> bool:
    """Whether all rows are the same, bit by bit: -0.0 is not 0.0, a NaN is itself."""
    first, *others = (row.tobytes() for row in rows)
    return all(other == first for other in others)


def given_to_all(row: np.ndarray, leaf: Leaf) -> np.ndarray:
    """The same row for each of the new workers."""
    return np.broadcast_to(row, (len(leaf.fresh), *row.shape))


def _equal(leaf: Leaf, merge: Merge) -> np.ndarray:
    del merge
    rows = leaf.rows
    if not all_alike(rows):
        other = next(i for i in range(len(rows)) if not all_alike(rows[[0, i]]))
        raise ValueError(
            f"resize: {leaf.name!r} should be the same on all workers and is not: "
            f"worker 0 has {_brief(rows[0])}, worker {other} has {_brief(rows[other])}"
            ". Resume on the old number of workers; or if it is meant to differ, give "
            "the field of its state a rule, as in Annotated[jax.Array, "
            "relaxjax.checkpoint.RESET]"
        )
    return given_to_all(rows[0], leaf)


def _mean(leaf: Leaf, rows: np.ndarray) -> np.ndarray:
    if all_alike(rows):
        return given_to_all(rows[0], leaf)
    y = _widened(rows)
    mean = y[0] + np.mean(y - y[:1], axis=0)
    return given_to_all(mean.astype(rows.dtype), leaf)


def _sum(leaf: Leaf, rows: np.ndarray) -> np.ndarray:
    share = np.sum(_widened(rows), axis=0) / len(leaf.fresh)
    return given_to_all(share.astype(rows.dtype), leaf)


def resliced(leaf: Leaf, rows: np.ndarray, before: int, now: int) -> np.ndarray:
    """The first `before` slices [n, c], joined and cut in `now` for n' workers.

    Worker i gets slice i mod `now`. Rows that are not vectors merge by MEAN.
    """
    if rows.ndim != 2:
        return _mean(leaf, rows)
    width = leaf.fresh.shape[1]
    flat = np.zeros(now * width, rows.dtype)
    elements = rows[:before].ravel()[: flat.size]
    flat[: elements.size] = elements
    return flat.reshape(now, width)[np.arange(len(leaf.fresh)) % now]


def _widened(rows: np.ndarray) -> np.ndarray:
    is_complex = jnp.issubdtype(rows.dtype, jnp.complexfloating)
    return rows.astype(np.complex128 if is_complex else np.float64)


def _brief(row: np.ndarray) -> str:
    return f"{row}" if row.size <= 4 else f"{row.ravel()[:4]} .."


EQUAL = MergeRule("equal", rebuilt=_equal)
MEAN = MergeRule("mean", _mean)
SUM = MergeRule("sum", _sum)
SHARD = MergeRule("shard", lambda leaf, x: resliced(leaf, x, len(x), len(leaf.fresh)))
RESET = MergeRule("reset", rebuilt=lambda leaf, merge: leaf.fresh)


def rebuild(rule: Callable[[Leaf, Merge], np.ndarray]) -> MergeRule:
    """The rule for a field that only a function of the whole state can merge.

    Args:
      rule: `rule(leaf, merge)` returns the new rows, [n', ...]; amounts at this place
        merge by `merge(leaf, rows)`.
    """
    return MergeRule("rebuild", rebuilt=rule)


def refuse(reason: str) -> MergeRule:
    """The rule for a field that cannot be right on another number of workers.

    Args:
      reason: a sentence that says why, and another that says what to do.
    """
    return MergeRule("refuse", reason=reason)


def marks_of(kind: type, mark: type = MergeRule) -> dict[str, Any]:
    """The marks of a state's class and of its bases, by field: the nearest one counts.

    It is a NamedTuple, a dataclass or any other.
    """
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        hints |= _hints_of(base)
    marks = {
        field: [x for x in _said(hint) if type(x) is mark]
        for field, hint in hints.items()
    }
    return {field: several[0] for field, several in marks.items() if several}


def _hints_of(kind: type) -> dict[str, Any]:
    """A class's own annotations."""
    hints = inspect.get_annotations(kind)
    # Texts are evaluated only where they must be: those of others' classes may fail.
    texts = [repr(x) for x in hints.values() if isinstance(x, str | ForwardRef)]
    if any("Annotated" in text for text in texts):
        told = get_type_hints(kind, include_extras=True)
        return {field: told[field] for field in hints}
    return hints


def _said(hint: Any) -> tuple[Any, ...]:
    """What is annotated, in the parts of `Annotated[...] | None` too."""
    of_parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    more = (x for part in of_parts for x in _said(part))
    return *getattr(hint, "__metadata__", ()), *more
