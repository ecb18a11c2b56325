"""From the rows of some workers to those of others, each array by its mark.

The tree of the new workers, as their `init` made it, says what there is; arrays are
found by their names. So lists may have another length, as of neighbours' copies.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from relaxjax._core._dtypes import is_key
from relaxjax._core._merge_rules import (
    EQUAL,
    MEAN,
    Leaf,
    MergeRule,
    all_alike,
    given_to_all,
    marks_of,
)
from relaxjax.checkpoint._tree import data_of, is_array


class LeafPlace(NamedTuple):
    """A leaf or a marked field of a tree, and what is said of it.

    Attributes:
      name: from the root.
      value: what is there.
      amount: how amounts merge here.
      mark: of the nearest marked field, if that settles it; else None.
      owner: the state that the mark is of, or the root.
      root: name of the owner.
    """

    name: str
    value: Any
    amount: MergeRule
    mark: MergeRule | None
    owner: Any
    root: str

    @property
    def path(self) -> str:
        """The name within the owner."""
        return self.name.removeprefix(self.root).removeprefix("/")


class Merged(NamedTuple):
    """What a resize comes to.

    Attributes:
      arrays: of each leaf, by its name: [n', ...]; of typed keys their data.
      rules: the name of the mark of each.
    """

    arrays: dict[str, np.ndarray]
    rules: dict[str, str]


def merged(saved: Mapping[str, np.ndarray], like: Any, workers: int) -> Merged:
    """The arrays of the new workers.

    Args:
      saved: arrays [n, ...] of the old workers by name; of typed keys their data.
      like: a tree of arrays [n', ...], as the transformation's `init` makes it.
      workers: n'.

    Raises:
      ValueError: a mark that forbids it; arrays that should be the same on all workers
        and are not; names that are on one side only, or have other shapes.
    """
    arrays: dict[str, np.ndarray] = {}
    rules: dict[str, str] = {}
    free: list[str] = []
    found = list(places(like))
    made = {place.name: place.value for place in found if is_array(place.value)}
    for place in found:
        if place.mark is not None and place.mark.reason:
            kind = type(place.owner).__name__
            raise ValueError(
                f"resize: {kind} at {place.root!r} cannot go on with {workers} "
                f"workers: {place.mark.reason}"
            )
        if place.mark not in (None, EQUAL):
            free.append(place.name)
        if place.name in made:
            rules[place.name], arrays[place.name] = _merged_leaf(place, saved, made)
    for name in saved:
        if name not in arrays and not any(f"{name}/".startswith(f"{f}/") for f in free):
            raise ValueError(
                f"resize: the old workers have {name!r} and the new ones have not: "
                "another relaxation, other options or another model"
            )
    return Merged(arrays, rules)


def _merged_leaf(
    place: LeafPlace, saved: Mapping[str, np.ndarray], made: Mapping[str, jax.Array]
) -> tuple[str, np.ndarray]:
    def of(path: str) -> str:
        return f"{place.root}/{path}" if place.root else path

    def before(path: str) -> np.ndarray:
        name = of(path)
        if name not in saved:
            raise ValueError(
                f"resize: the new workers have {name!r} and the old ones had not: "
                "another relaxation, other options or another model"
            )
        return saved[name]

    def now(path: str) -> np.ndarray:
        return _whole(data_of(made[of(path)]))

    leaf = Leaf(place.name, place.path, before, now, place.owner)
    assert place.amount.merge is not None
    if place.mark is not None:
        assert place.mark.rebuilt is not None
        name, rows = place.mark.name, place.mark.rebuilt(leaf, place.amount.merge)
    elif jnp.issubdtype(place.value.dtype, jnp.inexact):
        name, rows = place.amount.name, place.amount.merge(leaf, leaf.rows)
    elif is_key(place.value):
        name, rows = "own keys", _keys(leaf, jax.random.key_impl(place.value))
    else:
        assert EQUAL.rebuilt is not None
        name, rows = EQUAL.name, EQUAL.rebuilt(leaf, place.amount.merge)
    fresh = jax.eval_shape(data_of, place.value)
    if rows.shape != fresh.shape or rows.dtype != fresh.dtype:
        raise ValueError(
            f"resize: {place.name!r} would become {rows.dtype}{list(rows.shape)} and "
            f"is {fresh.dtype}{list(fresh.shape)} on the new workers: another "
            "relaxation, other options or another model"
        )
    return name, rows


def _keys(leaf: Leaf, impl: Any) -> np.ndarray:
    """Keys that all share stay shared; others stay with their workers."""
    rows = leaf.rows
    if all_alike(rows):
        return given_to_all(rows[0], leaf)
    n = len(rows)
    found = [
        row if i < n else jax.random.key_data(jax.random.fold_in(key, i))
        for i in range(len(leaf.fresh))
        for row in [rows[i % n]]
        for key in [jax.random.wrap_key_data(jnp.asarray(row), impl=impl)]
    ]
    return np.stack([np.asarray(x) for x in found])


def places(tree: Any) -> Iterator[LeafPlace]:
    """The leaves of a tree and the marked fields of its states, from the outside in."""
    yield from _walk(LeafPlace("", tree, MEAN, None, tree, ""), covered=False)


def _walk(place: LeafPlace, *, covered: bool) -> Iterator[LeafPlace]:
    """A place and those in it; `covered`: a field around it has a mark of an amount."""
    node = place.value
    if node is None or jax.tree_util.all_leaves([node]):
        yield from [] if node is None else [place]
        return
    marks = {} if place.mark is not None else marks_of(type(node))
    children = dict(_children(node))
    for field in children | marks:
        inner = place._replace(
            name=f"{place.name}/{field}" if place.name else field,
            value=children.get(field),
        )
        mark = marks.get(field)
        if mark is None:
            yield from _walk(inner, covered=covered)
        elif mark.merge is not None:
            amount = mark if place.amount is MEAN else place.amount
            own = inner._replace(amount=amount, owner=node, root=place.name)
            yield from _walk(own, covered=True)
        elif not (mark.reason and covered):
            own = inner._replace(mark=mark, owner=node, root=place.name)
            if not jax.tree_util.all_leaves([own.value]):
                yield own
            yield from _walk(own, covered=covered)


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    """What a node of a tree holds, by the names that leaves have of it."""
    found = jax.tree.leaves_with_path(node, is_leaf=lambda x: x is not node)
    for path, child in found:
        yield jax.tree_util.keystr(path, simple=True, separator="/"), child


def _whole(x: jax.Array) -> np.ndarray:
    """Rows of all workers, wherever they are; all processes ask for the same."""
    if x.is_fully_addressable:
        return np.asarray(x)
    return np.asarray(multihost_utils.process_allgather(x, tiled=True))
