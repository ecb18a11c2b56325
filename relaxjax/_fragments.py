"""The leaves of a model, dealt out to fragments of about equal size."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from relaxjax._layout import leaf_names


def fragments_of(
    caller: str,
    tree: Any,
    fragments: int,
    fragment_of: Callable[[str], int] | None = None,
) -> list[list[int]]:
    """Positions of each fragment's leaves.

    Args:
      caller: who is named in errors.
      tree: a pytree of arrays.
      fragments: number.
      fragment_of: from a leaf's name to its fragment; None deals them out by size.

    Raises:
      ValueError: a fragment without leaves, or one that there is not.
    """
    names, leaves = leaf_names(tree), jax.tree.leaves(tree)
    found: list[list[int]] = [[] for _ in range(fragments)]
    if fragment_of is None:
        sizes = np.array([x.size for x in leaves])
        filled = np.zeros(fragments)
        for i in np.argsort(-sizes, kind="stable"):  # the largest to the emptiest
            place = int(filled.argmin())
            found[place].append(int(i))
            filled[place] += max(1, sizes[i])
    else:
        for i, name in enumerate(names):
            place = fragment_of(name)
            if place not in range(fragments):
                raise ValueError(
                    f"{caller}: fragment_of({name!r}) is {place!r}, and must be one "
                    f"of the fragments 0 to {fragments - 1}"
                )
            found[place].append(i)
    if empty := [place for place, own in enumerate(found) if not own]:
        raise ValueError(
            f"{caller}: fragments={fragments}, and fragment {empty[0]} has no leaf of "
            f"the {len(leaves)} there are; take fewer fragments"
        )
    return [sorted(own) for own in found]


def gathered(tree: Any, parts: list[list[Any]], dealt: list[list[int]]) -> Any:
    """The fragments' leaves, in their places again."""
    leaves, structure = jax.tree.flatten(tree)
    for own, part in zip(dealt, parts, strict=True):
        for i, leaf in zip(own, part, strict=True):
            leaves[i] = leaf
    return structure.unflatten(leaves)
