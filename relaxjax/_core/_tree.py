"""The names, shapes and dtypes of a tree's leaves, as plain data that can be compared.

A transformation keeps the layout that its `init` saw, so that a tree which changed
since is an error that names the leaf, at trace time and under every mapping.

Names with numbers in them sort in the order that a person expects (2 before 10).
"""

import re
from typing import Any, NamedTuple

import jax


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts names with the numbers in them read as numbers.

    Args:
        name: any text.

    Example:
        >>> sorted(["layer10", "layer2"], key=natural_key)
        ['layer2', 'layer10']
    """
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(p), p) if p.isdigit() else (1, 0, p) for p in parts)


def leaf_name(path: Any) -> str:
    """The name of a leaf: its key path, joined by "/"; "params" for a bare array.

    Args:
        path: as `jax.tree_util.tree_leaves_with_path` gives it.
    """
    return jax.tree_util.keystr(path, simple=True, separator="/") or "params"


class Layout(NamedTuple):
    """A line `name dtype[shape]` per leaf; a pytree node without leaves.

    Attributes:
      lines: the lines, joined by newlines, in the tree's own order.
    """

    lines: str

    # Static data of a pytree node takes part in comparisons of tree structures.
    # `optax.tree.map_params` calls `init` with a placeholder that has no leaves and
    # compares what comes out with the real state: the empty layout equals any other.
    def __eq__(self, other: object) -> bool:
        """Equal lines, or one of the two saw no leaves at all."""
        if not isinstance(other, Layout):
            return False
        return not self.lines or not other.lines or self.lines == other.lines

    def __ne__(self, other: object) -> bool:
        """The opposite of `==` (a tuple brings its own)."""
        return not self == other

    def __hash__(self) -> int:
        """Constant, as the empty layout equals every other."""
        return hash(Layout)


jax.tree_util.register_static(Layout)


def leaf_names(tree: Any) -> list[str]:
    """Name of each leaf: its key path, joined by slashes."""
    return [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree.leaves_with_path(tree)
    ]


def dtype_and_shape(leaf: Any) -> str:
    """Dtype and shape of an array, as in `float32[3,4]`."""
    aval = jax.typeof(leaf)
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]"


def layout_of(tree: Any) -> Layout:
    """The layout of a tree of arrays or `jax.ShapeDtypeStruct`."""
    lines = [
        f"{name} {dtype_and_shape(leaf)}"
        for name, leaf in zip(leaf_names(tree), jax.tree.leaves(tree), strict=True)
    ]
    return Layout("\n".join(lines))


def difference(before: Layout, now: Layout, *, dtypes: bool) -> str | None:
    """The first leaf in which two layouts differ, in words; None if none does."""
    old, new = (
        dict(_name_and_spelling(line) for line in layout.lines.splitlines())
        for layout in (before, now)
    )
    for name in old | new:
        was, is_now = old.get(name, "absent"), new.get(name, "absent")
        if was == is_now:
            continue
        shapes = {spelling.partition("[")[2] for spelling in (was, is_now)}
        if not dtypes and len(shapes) == 1:
            continue
        return f"leaf {name!r} was {was} and is now {is_now}"
    return None


def _name_and_spelling(line: str) -> tuple[str, str]:
    name, _, spelling = line.rpartition(" ")
    return name, spelling


def require_same(before: Layout, updates: Any, caller: str) -> None:
    """Raises if `updates` is not shaped as the tree that `init` saw (dtypes may)."""
    wrong = difference(before, layout_of(updates), dtypes=False)
    if wrong:
        raise ValueError(
            f"{caller}: the tree changed since init: {wrong}. A state belongs to the "
            "params that it was made for: call relaxjax.init again for new params"
        )


def require_params(params: Any, caller: str, why: str) -> None:
    """Raises if `update` was called without the params that it needs."""
    if params is None:
        raise ValueError(
            f"{caller}: update needs params, {why}; call tx.update(gradients, state, "
            "params)"
        )
