"""Which leaves send some of their rows, and which travel whole.

For a batch of b matrices of n x m, with k rows of each and a sketch of r columns:

    b (r n + k m) < b n m      else the leaf travels as it is

Vectors, scalars and leaves without elements travel as they are.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._arrays import own_names
from relaxjax.compression import count_of
from relaxjax.gradients.low_rank._low_rank import AsMatrices, cut_of


class RowCut(NamedTuple):
    """A leaf as a batch of matrices, its sketch, and how many rows are sent."""

    batch: int
    rows: int
    columns: int
    rank: int
    chosen: int

    def of(self, leaf: jax.Array) -> jax.Array:
        """The matrices, [batch, rows, columns]."""
        return leaf.reshape(self.batch, self.rows, self.columns)

    def spread(
        self, chosen: jax.Array, places: jax.Array, shape: tuple[int, ...]
    ) -> jax.Array:
        """The leaf with chosen rows [batch, k, m] at [batch, k, 1], and zeros."""
        batch = jnp.arange(self.batch)[:, None]
        full = jnp.zeros((self.batch, self.rows, self.columns), chosen.dtype)
        return full.at[batch, places[:, :, 0]].set(chosen).reshape(shape)


def row_cuts(
    tree: Any, density: float, rank: int, as_matrices: AsMatrices | None, caller: str
) -> list[RowCut | None]:
    """How each leaf is cut into rows; None where it travels whole."""

    def one(name: str, leaf: Any) -> RowCut | None:
        if leaf.ndim < 2 or not leaf.size:
            return None
        batch, rows, columns = cut_of(name, leaf, as_matrices, caller)
        chosen = count_of(density, rows)
        smaller = rank * rows + chosen * columns < rows * columns
        return RowCut(batch, rows, columns, rank, chosen) if smaller else None

    return [one(*x) for x in zip(own_names(tree), jax.tree.leaves(tree), strict=True)]
