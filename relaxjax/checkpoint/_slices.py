"""Rows of workers that are slices of whole arrays: joined, merged whole, and cut anew.

With k slices of c = ceil(d / k) elements, worker i has slice i mod k of copy i // k:

    joined    [n, .., c]        ->  [n / k, .., d]
    cut       [n' / k', .., d]  ->  [n', .., c']

So a merge rule, which is about models, is about whole models here too: with k slices
inside an island and n / k islands, it merges the models of islands.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from relaxjax._core._merge_rules import Leaf, Merge, marks_of
from relaxjax._core._tree import key_path


class Sliced(NamedTuple):
    """How the workers hold an array.

    Attributes:
      parts: k, the number of slices.
      shape: shape of the whole array, of one layer.
    """

    parts: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements of the whole array, d."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Number of elements of a slice, c."""
        return -(-self.size // self.parts)

    def fits(self, rows: Any) -> bool:
        """Whether the rows are slices, [n, .., c]; counts and scales are not."""
        return rows.ndim > 1 and rows.shape[-1] == self.width

    def joined(self, rows: np.ndarray) -> np.ndarray:
        """The whole array of each copy, flat; rows that are not slices stay."""
        if not self.fits(rows):
            return rows
        k, (n, *layers, c) = self.parts, rows.shape
        copies = rows[: n // k * k].reshape(n // k, k, *layers, c)
        flat = np.moveaxis(copies, 1, -2).reshape(n // k, *layers, k * c)
        return flat[..., : self.size]

    def cut(self, whole: np.ndarray, workers: int) -> np.ndarray:
        """Inverse of `joined`; workers beyond whole copies repeat the first."""
        k, (copies, *layers, _) = self.parts, whole.shape
        padding = [(0, 0)] * (1 + len(layers)) + [(0, k * self.width - self.size)]
        slices = np.pad(whole, padding).reshape(copies, *layers, k, self.width)
        rows = np.moveaxis(slices, -2, 1).reshape(copies * k, *layers, self.width)
        i = np.arange(workers)
        return rows[np.where(i < len(rows), i, i % k)]


class Cuts(NamedTuple):
    """A leaf's slices, at the old workers and at the new ones; None: it is whole."""

    before: Sliced | None = None
    now: Sliced | None = None

    def merge(self, leaf: Leaf, rows: np.ndarray, amounts: Merge) -> np.ndarray:
        """Amounts, merged whole."""
        if self.before is None or self.now is None or not self.before.fits(rows):
            return amounts(leaf, rows)
        whole = leaf._replace(made=lambda path: self.joined(leaf.made(path)))
        return self.cut(amounts(whole, self.before.joined(rows)), leaf.fresh)

    def has_its_own(self, rows: np.ndarray | None) -> bool:
        """Whether each slice has an array beside it, and there are as many slices."""
        if rows is None or self.before is None or self.now is None:
            return False
        return self.before.parts == self.now.parts and not self.before.fits(rows)

    def joined(self, fresh: np.ndarray) -> np.ndarray:
        """An array of the new workers, whole for each copy."""
        return fresh if self.now is None else self.now.joined(fresh)

    def cut(self, whole: np.ndarray, fresh: Any) -> np.ndarray:
        """The rows of the new workers, if they are slices."""
        if self.now is None or not self.now.fits(fresh):
            return whole
        return self.now.cut(whole, len(fresh))


Slices = Mapping[str, Sliced]
"""How arrays are held, by the names of the nodes that hold slices."""


def slices_of(tree: Any) -> dict[str, Sliced]:
    """The nodes of a tree that hold slices."""
    return dict(_found("", tree))


def slices_told(metadata: Mapping[str, Any]) -> Slices | None:
    """The slices that a checkpoint names; None of one that does not say."""
    told = metadata.get("slices")
    if told is None:
        return None
    return {name: Sliced(parts, tuple(shape)) for name, (parts, shape) in told.items()}


def around(name: str, slices: Slices) -> str | None:
    """The name of the node of slices that this leaf is in; None for other leaves."""
    parts = name.split("/")
    outside = ("/".join(parts[:i]) for i in range(len(parts)))
    return next((node for node in outside if node in slices), None)


def guessed(saved: Mapping[str, np.ndarray], workers: int, like: Slices) -> Slices:
    """The slices of a checkpoint without their names: the most that fit all its rows.

    Small arrays alone do not tell: a scalar has a slice of one element for any number.
    """
    arrays: dict[str, list[np.ndarray]] = {}
    for name in saved:
        node = around(name, like)
        if node is not None:
            arrays.setdefault(node, []).append(saved[name])

    def fit(parts: int) -> bool:
        return all(
            any(map(Sliced(parts, like[node].shape).fits, held))
            for node, held in arrays.items()
        )

    counts = (k for k in range(workers, 0, -1) if workers % k == 0)
    parts = next(filter(fit, counts), workers)
    return {node: Sliced(parts, like[node].shape) for node in arrays}


def _found(name: str, node: Any) -> Iterator[tuple[str, Sliced]]:
    if node is None or jax.tree_util.all_leaves([node]):
        return
    for rule in marks_of(type(node)).values():
        if rule.slices is not None:
            parts, shape = rule.slices(node)
            yield name, Sliced(parts, shape)
            return
    for path, child in jax.tree.leaves_with_path(node, is_leaf=lambda x: x is not node):
        yield from _found(f"{name}/{key_path(path)}".lstrip("/"), child)
