"""The leaves of a model, dealt out to fragments of about equal size."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from relaxjax._core._tree import leaf_names


class Fragments(NamedTuple):
    """Which leaf is in which fragment.

    Attributes:
      places: of each fragment, its leaves' positions in the tree, rising.
    """

    places: tuple[tuple[int, ...], ...]

    def split(self, tree: Any) -> list[Any]:
        """Each fragment: the tree, with `optax.MaskedNode` for the others' leaves."""
        leaves, structure = jax.tree.flatten(tree)
        return [
            structure.unflatten(
                leaf if i in own else optax.MaskedNode()
                for i, leaf in enumerate(leaves)
            )
            for own in self.places
        ]

    def join(self, parts: list[Any], like: Any) -> Any:
        """Inverse of `split`, in the structure of `like`."""
        leaves, structure = jax.tree.flatten(like)
        for own, part in zip(self.places, parts, strict=True):
            for i, leaf in zip(own, jax.tree.leaves(part), strict=True):
                leaves[i] = leaf
        return structure.unflatten(leaves)


def fragments_of(
    caller: str,
    tree: Any,
    count: int,
    fragment_of: Callable[[str], int] | None = None,
) -> Fragments:
    """Deals the leaves out.

    Args:
      caller: who is named in errors.
      tree: a pytree of arrays; one without leaves, such as a placeholder, is its own
        fragment each time.
      count: number of fragments.
      fragment_of: from a leaf's name to its fragment; None deals them out by size.

    Raises:
      ValueError: a fragment without leaves, or one that there is not.
    """
    leaves = jax.tree.leaves(tree)
    if fragment_of is None:
        numbers = _by_size([x.size for x in leaves], count)
    else:
        numbers = [
            _named(caller, name, count, fragment_of) for name in leaf_names(tree)
        ]
    places = [
        tuple(np.flatnonzero(np.equal(numbers, n)).tolist()) for n in range(count)
    ]
    empty = [number for number, own in enumerate(places) if not own]
    if leaves and empty:
        raise ValueError(
            f"{caller}: fragments={count}, and fragment {empty[0]} has no leaf of "
            f"the {len(leaves)} there are; take fewer fragments"
        )
    return Fragments(tuple(places))


def _by_size(sizes: list[int], count: int) -> list[int]:
    """Each leaf's fragment: the largest leaf goes to the emptiest."""
    filled, numbers = np.zeros(count), [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        numbers[i] = int(filled.argmin())
        filled[numbers[i]] += sizes[i]
    return numbers


def _named(
    caller: str, name: str, count: int, fragment_of: Callable[[str], int]
) -> int:
    number = fragment_of(name)
    if number not in range(count):
        raise ValueError(
            f"{caller}: fragment_of({name!r}) is {number!r}, and must be one of the "
            f"fragments 0 to {count - 1}"
        )
    return number
