"""Fragments of a model: whole leaves, dealt out so that the parts are of one size.

The largest leaf goes to the emptiest fragment, then the next, and so on; or a function
of a leaf's name says where it goes.

Cost: O(leaves) while tracing.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from relaxjax._core._arrays import own_names
from relaxjax._core._checks import require_whole


def split(count: int, numbers: Any, tree: Any) -> list[Any]:
    """Each fragment: the tree, with `optax.MaskedNode` for the others' leaves."""

    def fragment(k: int) -> Any:
        return jax.tree.map(
            lambda n, leaf: leaf if n == k else optax.MaskedNode(), numbers, tree
        )

    return [fragment(k) for k in range(count)]


def join(numbers: Any, fragments: list[Any]) -> Any:
    """Inverse of `split`."""
    return jax.tree.map(lambda n, *leaves: leaves[n], numbers, *fragments)


def deal(
    caller: str, count: int, fragment_of: Callable[[str], int] | None, tree: Any
) -> Any:
    """A tree like this one, of the number of each leaf's fragment."""
    leaves, structure = jax.tree.flatten(tree)
    if fragment_of is None:
        numbers = _by_size([x.size for x in leaves], count)
    else:
        numbers = [
            _by_name(caller, name, count, fragment_of) for name in own_names(tree)
        ]
    empty = sorted(set(range(count)) - set(numbers))
    if leaves and empty:
        raise ValueError(
            f"{caller}: fragments={count}, and fragment {empty[0]} has no leaf of the "
            f"{len(leaves)} there are; take fewer fragments"
        )
    return structure.unflatten(numbers)


def steps_between(caller: str, sync_every: int, fragments: int) -> int:
    """Steps from one fragment's meeting to that of the next, which must be whole."""
    require_whole(caller, "sync_every", sync_every)
    every, left = divmod(sync_every, fragments)
    if left:
        raise ValueError(
            f"{caller}: sync_every={sync_every} must be a multiple of fragments="
            f"{fragments}, such as {fragments * (every + 1)}"
        )
    return every


def _by_size(sizes: list[int], count: int) -> list[int]:
    """Each leaf's fragment: the largest leaf goes to the emptiest."""
    filled, numbers = np.zeros(count), [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        numbers[i] = int(filled.argmin())
        filled[numbers[i]] += sizes[i]
    return numbers


def _by_name(
    caller: str, name: str, count: int, fragment_of: Callable[[str], int]
) -> int:
    """A leaf's fragment, if there is such a one."""
    number = fragment_of(name)
    if number not in range(count):
        raise ValueError(
            f"{caller}: fragment_of({name!r}) is {number!r}, and must be one of the "
            f"fragments 0 to {count - 1}"
        )
    return int(number)
