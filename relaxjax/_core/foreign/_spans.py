"""Parts of a tree, and where their leaves are among all of its leaves.

A tree of a user's classes is taken apart and never made anew of something else: their
constructors may look at what they are given.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax


def spans(
    tree: Any, stops: Callable[[Any], bool], start: int = 0
) -> Iterator[tuple[Any, range]]:
    """The parts at which it stops, and other leaves, with the places of their leaves.

    Args:
      tree: any tree.
      stops: whether a part is taken whole.
      start: the place of the first leaf.
    """
    for part in jax.tree.leaves(tree, is_leaf=stops):
        end = start + len(jax.tree.leaves(part))
        yield part, range(start, end)
        start = end
