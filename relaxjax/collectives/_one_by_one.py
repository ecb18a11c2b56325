"""Transfers one after the other, on every backend."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax

from relaxjax.collectives._wire_dtypes import once_arrived


class LeafTransfer(NamedTuple):
    """Leaves that travel together.

    Attributes:
      name: their names, joined by commas.
      leaves: their positions in the tree.
    """

    name: str
    leaves: tuple[int, ...]


class Slices(Protocol):
    """Which slice of every leaf a worker holds; see `relaxjax.ps._servers`."""

    def rows(self, x: jax.Array) -> jax.Array:
        """[k, c]: the slices of x[...]."""
        ...

    def pull(self, own: jax.Array) -> jax.Array:
        """[k, c]: all slices, from this worker's [c]."""
        ...

    def push(self, rows: jax.Array, *, divided: bool = False) -> jax.Array:
        """[c]: the mean over all workers of this worker's row of [k, c].

        Rows that are `divided` by the number of workers already are added up.
        """
        ...


def one_by_one(
    plan: Sequence[LeafTransfer],
    verb: str,
    xs: Sequence[jax.Array],
    exchange: Callable[[list[jax.Array], int], list[jax.Array]],
) -> list[list[jax.Array]]:
    """What an exchange makes of each transfer's arrays, one transfer after the other.

    `verb` is "pull" or "push"; `exchange` takes the arrays of a transfer's leaves, and
    its number, to arrays of which the first ends what is sent.
    """
    out: list[list[jax.Array]] = []
    for number, transfer in enumerate(plan):
        members = [xs[i] for i in transfer.leaves]
        if out:
            members, out[-1][0] = once_arrived(members, out[-1][0])
        with jax.named_scope(f"{verb} {transfer.name};"):
            out.append(exchange(members, number))
    return out
