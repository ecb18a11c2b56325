"""Leaves as matrices, and which of them a rank makes smaller.

r (n + m) floats stand for the n m of a matrix; a leaf of more than two dimensions is
cut in two, or into a batch of matrices.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from relaxjax._core._tree import leaf_names

# From a leaf's name and shape to (batch, rows, columns): how many matrices it is.
AsMatrices = Callable[[str, tuple[int, ...]], tuple[int, int, int]]


class Matrices(NamedTuple):
    """A leaf as a batch of matrices, and the rank of what is sent of each."""

    batch: int
    rows: int
    columns: int
    rank: int

    def of(self, leaf: jax.Array) -> jax.Array:
        """The matrices, float32[batch, rows, columns]."""
        return leaf.reshape(self.batch, self.rows, self.columns)


def most_square(name: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """One matrix, cut where rows and columns are fewest together.

    Args:
      name: of the leaf; not looked at.
      shape: of the leaf.

    Returns:
      (1, rows, columns).

    Example:
      >>> from relaxjax.gradients._matricize import most_square
      >>> most_square("kernel", (3, 3, 64, 128))
      (1, 576, 128)
    """
    del name
    cuts = range(1, len(shape))
    sides = [(math.prod(shape[:cut]), math.prod(shape[cut:])) for cut in cuts]
    rows, columns = min(sides, key=sum, default=(math.prod(shape), 1))
    return 1, rows, columns


def matrices_of(
    tree: Any, *, rank: int, min_compression: float, as_matrices: AsMatrices
) -> list[Matrices | None]:
    """How each leaf is compressed; None where it is not."""

    def one(name: str, leaf: Any) -> Matrices | None:
        if leaf.ndim < 2 or not leaf.size:
            return None
        batch, rows, columns = as_matrices(name, leaf.shape)
        if batch * rows * columns != leaf.size:
            raise ValueError(
                f"power_sgd: as_matrices made {batch} matrices of {rows} x {columns} "
                f"of leaf {name!r} of shape {leaf.shape}: the elements must be as many"
            )
        found = Matrices(batch, rows, columns, min(rank, rows, columns))
        sent = batch * found.rank * (rows + columns)
        return found if min_compression * sent < leaf.size else None

    return [one(*x) for x in zip(leaf_names(tree), jax.tree.leaves(tree), strict=True)]


def nothing_to_compress(params: Any, rank: int, min_compression: float) -> ValueError:
    shapes = sorted({x.shape for x in jax.tree.leaves(params)}, key=math.prod)
    return ValueError(
        f"power_sgd: rank={rank} compresses none of the leaves (the largest is "
        f"{shapes[-1]}): vectors and scalars travel as they are, and of an n x m "
        f"matrix {min_compression:g} * rank * (n + m) must be less than n * m. Lower "
        "the rank, or use relaxjax.all_reduce"
    )
