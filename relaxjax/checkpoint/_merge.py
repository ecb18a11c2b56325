"""From the rows of some workers to those of others, each array by its merge rule.

The tree of the new workers, as their `init` made it, says what there is; arrays are
found by their names. So a list, such as the copies of neighbors, may change its length.

Where rows are slices, amounts are joined, merged and cut anew, and what is EQUAL is so
in whole arrays; the rule of a state sees slices, which its `merge` joins.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core._merge_rules import (
    EQUAL,
    MEAN,
    Leaf,
    MergeRule,
    all_alike,
    given_to_all,
    marks_of,
)
from relaxjax._core._tree import is_key, key_path
from relaxjax.checkpoint._slices import Cuts, Slices, around, slices_of
from relaxjax.checkpoint._tree import data_of, is_array
from relaxjax.workers import on_host

_OTHER = ": another relaxation, other options or another model"


class LeafPlace(NamedTuple):
    """A leaf of a tree, or a field of a state with a rule, and how it merges."""

    name: str  # from the root of the tree
    value: Any  # the leaf, or what the field holds
    amount: MergeRule  # the rule of amounts here
    rule: MergeRule | None  # of the nearest field whose rule is not for amounts
    owner: Any  # the state that the rule belongs to, or the tree
    root: str  # name of the owner

    @property
    def path(self) -> str:
        """The name within the owner."""
        return self.name.removeprefix(self.root).removeprefix("/")


class Merged(NamedTuple):
    """Arrays [n', ...] of the new workers by name, for typed keys their data."""

    arrays: dict[str, np.ndarray]
    rules: dict[str, str]  # name of the rule that each was merged by


class _Sides(NamedTuple):
    """The arrays by name, and the nodes whose rows are slices: saved and fresh."""

    saved: Mapping[str, np.ndarray]
    slices: Slices
    fresh: Mapping[str, jax.Array]
    held: Slices

    def cuts(self, name: str) -> Cuts:
        """How this leaf is sliced."""
        node = around(name, self.held)
        if node is None:
            return Cuts()
        before, now = self.slices.get(node), self.held[node]
        if before and before.shape != now.shape:
            raise ValueError(
                f"resize: {name!r} is in slices of an array of {list(before.shape)} "
                f"and was made for one of {list(now.shape)}{_OTHER}"
            )
        return Cuts(before, now)

    def leaf(self, place: LeafPlace, *, whole: bool) -> Leaf:
        """What a rule sees of a place; `whole`: of slices, all of them joined."""

        def rows_of(name: str, rows: np.ndarray, slices: Slices) -> np.ndarray:
            node = around(name, slices) if whole else None
            return rows if node is None else slices[node].joined(rows)

        def before(path: str) -> np.ndarray:
            name = _joined(place.root, path)
            if name not in self.saved:
                text = f"the new workers have {name!r}, the old ones do not{_OTHER}"
                raise ValueError(f"resize: {text}")
            return rows_of(name, self.saved[name], self.slices)

        def now(path: str) -> np.ndarray:
            name = _joined(place.root, path)
            return rows_of(name, on_host(data_of(self.fresh[name])), self.held)

        cuts = self.cuts(place.name)
        parts = tuple(x.parts if x else 1 for x in (cuts.before, cuts.now))
        return Leaf(place.name, place.path, before, now, place.owner, parts)


def merged(
    saved: Mapping[str, np.ndarray], slices: Slices, like: Any, workers: int
) -> Merged:
    """The arrays of n' new workers, whose `init` made `like`, from those of the old."""
    arrays: dict[str, np.ndarray] = {}
    rules: dict[str, str] = {}
    optional: list[str] = []  # what the new workers may do without
    places = list(_walk(LeafPlace("", like, MEAN, None, like, ""), covered=False))
    fresh = {place.name: place.value for place in places if is_array(place.value)}
    sides = _Sides(saved, slices, fresh, slices_of(like))
    for place in places:
        if place.rule is not None and place.rule.reason:
            raise ValueError(
                f"resize: {type(place.owner).__name__} at {place.root!r} cannot go on "
                f"with {workers} workers: {place.rule.reason}"
            )
        if place.rule not in (None, EQUAL):
            optional.append(f"{place.name}/")
        if place.name in fresh:
            rules[place.name], arrays[place.name] = _merged_leaf(place, sides)
    for name in saved:
        if name not in arrays and not f"{name}/".startswith(tuple(optional)):
            raise ValueError(
                f"resize: the old workers have {name!r}, the new ones do not{_OTHER}"
            )
    return Merged(arrays, rules)


def _merged_leaf(place: LeafPlace, sides: _Sides) -> tuple[str, np.ndarray]:
    rule, value, cuts = place.rule, place.value, sides.cuts(place.name)
    whole = rule is EQUAL and cuts.now is not None
    leaf, amounts = sides.leaf(place, whole=whole), place.amount.merge
    assert amounts is not None

    def merge(leaf: Leaf, rows: np.ndarray) -> np.ndarray:
        return amounts(leaf, rows) if whole else cuts.merge(leaf, rows, amounts)

    if rule is None and jnp.issubdtype(value.dtype, jnp.inexact):
        name, rows = place.amount.name, merge(leaf, leaf.rows)
    elif rule is None and is_key(value):
        name, rows = "own keys", _keys(leaf, jax.random.key_impl(value))
    else:
        rule = rule or EQUAL
        assert rule.rebuilt is not None
        own = whole and cuts.has_its_own(sides.saved.get(place.name))
        leaves = leaf.of_each(cuts.now.parts) if own and cuts.now else [leaf]
        each = [rule.rebuilt(x, merge) for x in leaves]
        name, (count, *shape) = rule.name, each[0].shape
        rows = np.stack(each, 1).reshape(count * len(each), *shape)
    wanted = jax.eval_shape(data_of, value)
    if whole:
        rows = cuts.cut(rows, wanted)
    if rows.shape != wanted.shape or rows.dtype != wanted.dtype:
        raise ValueError(
            f"resize: {place.name!r} would become {rows.dtype}{list(rows.shape)} and "
            f"is {wanted.dtype}{list(wanted.shape)} on the new workers{_OTHER}"
        )
    return ("shard" if name == "mean" and cuts.now else name), rows


def _keys(leaf: Leaf, impl: Any) -> np.ndarray:
    """Shared keys stay shared; others stay with their workers, and new ones are new."""
    rows = leaf.rows
    if all_alike(rows):
        return given_to_all(rows[0], leaf)

    def key_of(i: int) -> np.ndarray:
        row = rows[i % len(rows)]
        if i < len(rows):
            return row
        key = jax.random.wrap_key_data(jnp.asarray(row), impl=impl)
        return np.asarray(jax.random.key_data(jax.random.fold_in(key, i)))

    return np.stack([key_of(i) for i in range(len(leaf.fresh))])


def _walk(place: LeafPlace, *, covered: bool) -> Iterator[LeafPlace]:
    """The places in a tree; `covered`: a field around this one has an amount's rule."""
    node = place.value
    if node is None or jax.tree_util.all_leaves([node]):
        yield from [] if node is None else [place]
        return
    rules = {} if place.rule is not None else marks_of(type(node))
    inside = jax.tree.leaves_with_path(node, is_leaf=lambda x: x is not node)
    children = {key_path(path): child for path, child in inside}
    for field in children | rules:
        name, child = _joined(place.name, field), children.get(field)
        inner = place._replace(name=name, value=child)
        ruled = inner._replace(owner=node, root=place.name)
        rule = rules.get(field)
        if rule is None:
            yield from _walk(inner, covered=covered)
        elif rule.slices is not None:
            yield from _walk(inner, covered=True)
        elif rule.merge is not None:
            amount = rule if place.amount is MEAN else place.amount
            yield from _walk(ruled._replace(amount=amount), covered=True)
        elif not (rule.reason and covered):
            ruled = ruled._replace(rule=rule)
            if not jax.tree_util.all_leaves([child]):
                yield ruled
            yield from _walk(ruled, covered=covered)


def _joined(root: str, path: str) -> str:
    return f"{root}/{path}" if root else path
