"""Names with numbers in them, in the order that a person expects."""

import re
from typing import Any

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
